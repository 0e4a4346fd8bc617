// A replica on the cpu with everything it needs around it, and plain access to its numbers.
#pragma once
#include <memory>
#include <random>
#include <vector>

#include "data/dataset.h"
#include "tensor/cpu/stream.h"
#include "tensor/disk/file_memory.h"
#include "tensor/host_memory.h"
#include "tensor/transfer.h"
#include "train/replica.h"

namespace lockstep::tests {

// Where state is that the options offload: in a second memory of the host, or in a file.
inline std::unique_ptr<Memory> offload_memory(const MemorySpec& memory, Ledger& ledger) {
  switch (memory.offloads_to()) {
    case Offload::none:
      return nullptr;
    case Offload::host:
      return make_host_memory(Device::cpu, ledger);
    case Offload::disk:
      return std::make_unique<disk::FileMemory>(ledger, std::filesystem::temp_directory_path());
  }
  return nullptr;
}

struct HostRun {
  explicit HostRun(const Replica::Options& options, int threads = 1)
      : memory(make_memory(Device::cpu, ledger)),
        offload(offload_memory(options.how.memory, offloaded)),
        stream(std::make_unique<cpu::Stream>(*memory, threads)),
        replica(std::make_unique<Replica>(options, *memory, *stream, offload.get())) {}

  Ledger ledger, offloaded;
  std::unique_ptr<Memory> memory, offload;
  std::unique_ptr<cpu::Stream> stream;
  std::unique_ptr<Replica> replica;
};

// The bytes of all master weights, one tensor after the other.
inline std::vector<char> weight_bytes(const HostRun& run) {
  std::vector<char> all;
  for (const auto& t : run.replica->tensors()) {
    std::vector<char> bytes(static_cast<std::size_t>(t.master.bytes()));
    download(bytes.data(), t.master, *run.stream);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

struct TokenBatch {
  std::vector<std::int32_t> tokens, targets;
};

// Cuts a sample to its first N tokens; kPadding follows.
inline void shorten(TokenBatch& batch, const Replica::Options& o, std::int64_t sample, std::int64_t tokens) {
  const auto first = static_cast<std::size_t>(sample * o.T + tokens);
  batch.targets[first - 1] = kNoTarget;
  for (std::size_t at = first; at < static_cast<std::size_t>((sample + 1) * o.T); ++at)
    batch.tokens[at] = kPadding, batch.targets[at] = kNoTarget;
}

// Where samples are to be several documents, they are, of lengths from one token to all. Without padding they have so
// many `tokens`; 0: as many as come.
inline TokenBatch random_batch(const Replica::Options& o, unsigned seed, std::int64_t tokens = 0) {
  std::mt19937 random(seed);
  TokenBatch batch;
  for (std::int64_t i = 0; i < o.B * o.T; ++i) {
    batch.tokens.push_back(static_cast<std::int32_t>(random() % o.spec.vocabulary));
    batch.targets.push_back(random() % 7 == 0 ? -1 : static_cast<std::int32_t>(random() % o.spec.vocabulary));
  }
  for (std::size_t at = 0; o.how.documents && at < batch.tokens.size(); at += 1 + random() % o.T) {
    batch.tokens[at] |= kBeginsDocument;
    if (at > 0) batch.targets[at - 1] = kNoTarget;
  }
  for (std::int64_t sample = 0; o.how.varlen && sample < o.B; ++sample)
    shorten(batch, o, sample, tokens > 0 ? tokens : 1 + static_cast<std::int64_t>(random() % o.T));
  return batch;
}

}  // namespace lockstep::tests
