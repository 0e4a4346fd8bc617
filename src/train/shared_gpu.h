// Ranks that are threads and share one GPU, and workers on GPUs under servers on the cpu: their communicators there.
#pragma once
#include "comm/staged.h"
#include "comm/threads/world.h"

namespace lockstep {

// The same ranks as `hosts`, a communicator of threads, for tensors that they compute on in their streams.
inline std::unique_ptr<Communicator> on_shared_gpu(Communicator& hosts, Stream& stream) {
  return on_stream(hosts.split([](int rank) { return Place{.color = 0, .key = rank}; }, "replicas"), stream);
}

// The same where parameter servers are on the cpu under workers on GPUs, of threads or processes: on a server the
// host's, on a worker one whose tensors go through the host.
inline std::unique_ptr<Communicator> beside_servers_on_cpu(Communicator& hosts, Stream& stream) {
  auto all = hosts.split([](int rank) { return Place{.color = 0, .key = rank}; }, "replicas");
  if (stream.device() == Device::cpu) return all;
  return std::make_unique<Staged>(std::move(all), stream);
}

}  // namespace lockstep
