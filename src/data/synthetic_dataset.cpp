#include "data/synthetic_dataset.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/integers.h"

namespace lockstep {

SyntheticDataset::SyntheticDataset(const SyntheticLanguage& language, std::int64_t sequence, std::int64_t first,
                                   std::int64_t count)
    : language_(language), sequence_(sequence), first_(first), count_(count) {
  LOCKSTEP_CHECK(sequence >= 1 && checked_add(first, count), "{} samples of {} tokens from {} on", count, sequence,
                 first);
}

void SyntheticDataset::sample(std::int64_t index, std::span<std::int32_t> tokens,
                              std::span<std::int32_t> targets) const {
  LOCKSTEP_CHECK(index >= 0 && index < count_, "sample {} of {}", index, count_);
  const auto T = static_cast<std::size_t>(sequence_);
  LOCKSTEP_CHECK(tokens.size() == T && targets.size() == T, "room for {} tokens and {} targets, of {}", tokens.size(),
                 targets.size(), sequence_);
  std::vector<std::int32_t> all(T + 1);
  language_.sample(first_ + index, all);
  std::copy(all.begin(), all.end() - 1, tokens.begin());
  std::copy(all.begin() + 1, all.end(), targets.begin());
}

std::uint64_t SyntheticDataset::fingerprint() const {
  const std::array<std::uint64_t, 4> identity = {language_.fingerprint(), static_cast<std::uint64_t>(sequence_),
                                                 static_cast<std::uint64_t>(first_),
                                                 static_cast<std::uint64_t>(count_)};
  return checksum(std::as_bytes(std::span(identity)));
}

}  // namespace lockstep
