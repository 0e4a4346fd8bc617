// Small results on their way to the host: stores of a kernel into the host's page-locked memory.
//
// Copies from a GPU go through its copy engine, one after the other in the order in which they were given, whichever
// stream they are of: a few bytes that are copied beside the snapshot of a checkpoint arrive after all of it, and a
// step whose losses go that way waits. A kernel's stores do not pass the engine.
//
// `to` is memory of a HostBuffer (tensor/transfer.h) of the stream's device, with at least the bytes of `from`, which
// is contiguous, on the device and of a type of 4 or 8 bytes. The host may read `to` when an event that was recorded
// after the call has been reached. On the cpu it is there when the call returns; on meta it is zeros, and nothing is
// counted.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct HostStoreArgs {
  void* to;
  ConstTensor from;
};

using HostStore = void(const HostStoreArgs&, Stream&);
HostStore host_store;
namespace cpu {
HostStore host_store;
}
namespace cuda {
HostStore host_store;
}
namespace meta {
HostStore host_store;
}

}  // namespace lockstep
