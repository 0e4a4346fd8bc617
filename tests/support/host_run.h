// A replica on the cpu with everything it needs around it, and plain access to its numbers.
#pragma once
#include <memory>
#include <random>
#include <vector>

#include "tensor/cpu/stream.h"
#include "train/replica.h"

namespace lockstep::tests {

struct HostRun {
  explicit HostRun(const Replica::Options& options, int threads = 1)
      : memory(make_memory(Device::cpu, ledger)),
        stream(std::make_unique<cpu::Stream>(*memory, threads)),
        replica(std::make_unique<Replica>(options, *memory, *stream)) {}

  Ledger ledger;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<cpu::Stream> stream;
  std::unique_ptr<Replica> replica;
};

// The bytes of all master weights, one tensor after the other.
inline std::vector<char> weight_bytes(const HostRun& run) {
  std::vector<char> all;
  for (const auto& t : run.replica->tensors()) {
    const char* p = static_cast<const char*>(t.master.raw());
    all.insert(all.end(), p, p + t.master.bytes());
  }
  return all;
}

struct TokenBatch {
  std::vector<std::int32_t> tokens, targets;
};

inline TokenBatch random_batch(const Replica::Options& o, unsigned seed) {
  std::mt19937 random(seed);
  TokenBatch batch;
  for (std::int64_t i = 0; i < o.B * o.T; ++i) {
    batch.tokens.push_back(static_cast<std::int32_t>(random() % o.spec.vocabulary));
    batch.targets.push_back(random() % 7 == 0 ? -1 : static_cast<std::int32_t>(random() % o.spec.vocabulary));
  }
  return batch;
}

}  // namespace lockstep::tests
