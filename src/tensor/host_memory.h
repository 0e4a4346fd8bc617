// The host's memory beside a device, for what is offloaded: page-locked where the device is a GPU, so that copies need
// no help from the host and run at the link's rate.
#pragma once
#include <memory>

#include "tensor/memory.h"

namespace lockstep {

// Its tensors are of the cpu; beside meta, of meta, and count. The ledger outlives it.
//
// Locking pages one by one takes most of a minute for 100 GiB. So a GPU's buffers are made of huge pages, which all
// cores touch first: that, and locking them, takes five seconds.
std::unique_ptr<Memory> make_host_memory(Device beside, Ledger& ledger);

}  // namespace lockstep
