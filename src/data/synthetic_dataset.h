// Samples of a synthetic language (synthetic_language.h), made when asked for.
//
// Sample i is the language's sample first + i, T + 1 tokens of it. Training takes the indices from 0 on, which no run
// exhausts; evaluation those from kEvalFirst on, so they never meet.
#pragma once
#include <cstdint>
#include <span>

#include "data/dataset.h"
#include "data/synthetic_language.h"

namespace lockstep {

class SyntheticDataset final : public Dataset {
 public:
  static constexpr std::int64_t kTrainSamples = std::int64_t{1} << 40;
  static constexpr std::int64_t kEvalFirst = kTrainSamples;

  // The language must outlive this object. sequence >= 1, first >= 0, count >= 0.
  SyntheticDataset(const SyntheticLanguage& language, std::int64_t sequence, std::int64_t first, std::int64_t count);

  std::int64_t samples() const override { return count_; }
  std::int64_t sequence() const override { return sequence_; }
  std::int64_t vocabulary() const override { return language_.vocabulary(); }
  bool endless() const override { return true; }
  void sample(std::int64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const override;
  std::uint64_t fingerprint() const override;

 private:
  const SyntheticLanguage& language_;
  std::int64_t sequence_, first_, count_;
};

}  // namespace lockstep
