// What one rank of a test computes on: the cpu, or a GPU that all of the test's ranks share, as threads.
#pragma once
#include "support/host_run.h"
#include "tensor/make_stream.h"
#include "train/shared_gpu.h"

namespace lockstep::tests {

class RankDevice {
 public:
  // `hosts`: the ranks, on the host; they outlive it. All ranks construct theirs.
  RankDevice(Device device, Communicator& hosts)
      : hosts_(hosts),
        memory_(make_memory(device, ledger_)),
        stream_(make_stream(*memory_, 1)),
        on_gpu_(device == Device::cuda ? on_shared_gpu(hosts, *stream_) : nullptr) {}

  Memory& memory() { return *memory_; }
  Stream& stream() { return *stream_; }
  Replica::Ranks ranks() { return {on_gpu_ ? *on_gpu_ : hosts_, hosts_}; }

 private:
  Communicator& hosts_;
  Ledger ledger_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Communicator> on_gpu_;  // none: tensors are the host's
};

}  // namespace lockstep::tests
