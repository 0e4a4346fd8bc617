// What one rank of a test computes on: the cpu, or a GPU that all of the test's ranks share, as threads.
#pragma once
#include "support/host_run.h"
#include "tensor/make_stream.h"
#include "train/shared_gpu.h"

namespace lockstep::tests {

class RankDevice {
 public:
  // `hosts`: the ranks, on the host; they outlive it. All ranks construct theirs. `staged`: some are on the host, and
  // tensors go through it.
  RankDevice(Device device, Communicator& hosts, bool staged = false)
      : hosts_(hosts),
        memory_(make_memory(device, ledger_)),
        stream_(make_stream(*memory_, 1)),
        on_gpu_(staged                   ? staged_ranks(hosts, *stream_)
                : device == Device::cuda ? on_shared_gpu(hosts, *stream_)
                                         : nullptr) {}

  Memory& memory() { return *memory_; }
  Stream& stream() { return *stream_; }
  Replica::Ranks ranks() { return {on_gpu_ ? *on_gpu_ : hosts_, hosts_}; }

 private:
  static std::unique_ptr<Communicator> staged_ranks(Communicator& hosts, Stream& stream) {
    return std::make_unique<Staged>(hosts.split([](int rank) { return Place{.color = 0, .key = rank}; }, "replicas"),
                                    stream);
  }
  Communicator& hosts_;
  Ledger ledger_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Communicator> on_gpu_;  // none: tensors are the host's
};

}  // namespace lockstep::tests
