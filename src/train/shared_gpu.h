// Ranks that are threads and share one GPU: their communicator there.
#pragma once
#include "comm/threads/world.h"

namespace lockstep {

// The same ranks as `hosts`, a communicator of threads, for tensors that they compute on in their streams.
inline std::unique_ptr<Communicator> on_shared_gpu(Communicator& hosts, Stream& stream) {
  return on_stream(hosts.split([](int rank) { return Place{.color = 0, .key = rank}; }, "replicas"), stream);
}

}  // namespace lockstep
