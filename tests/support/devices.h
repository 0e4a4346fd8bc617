// The cpu and meta devices a test computes on: a ledger, a memory, and streams of several thread counts.
#pragma once
#include <map>

#include "tensor/cpu/stream.h"
#include "tensor/meta/stream.h"

namespace lockstep::tests {

class CpuDevice {
 public:
  Memory& memory() { return *memory_; }
  // The stream with this many threads, made when first asked for. (As its base: an argument of type cpu::Stream would
  // make a kernel's name find its twin in namespace cpu too.)
  Stream& stream(int threads = 1) {
    auto& made = streams_[threads];
    if (!made) made = std::make_unique<cpu::Stream>(*memory_, threads);
    return *made;
  }

 private:
  Ledger ledger_;
  std::unique_ptr<Memory> memory_ = make_memory(Device::cpu, ledger_);
  std::map<int, std::unique_ptr<cpu::Stream>> streams_;
};

class MetaDevice {
 public:
  Memory& memory() { return *memory_; }
  Stream& stream() { return stream_; }
  meta::Work& work() { return stream_.work(); }

 private:
  Ledger ledger_;
  std::unique_ptr<Memory> memory_ = make_memory(Device::meta, ledger_);
  meta::Stream stream_;
};

}  // namespace lockstep::tests
