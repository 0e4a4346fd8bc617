#include "spec/model/document_pairs.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {

DocumentPairs::DocumentPairs(std::int64_t samples, std::int64_t T, std::span<const std::int64_t> lengths)
    : shares_(static_cast<std::size_t>(T)) {
  LOCKSTEP_CHECK(samples >= 1 && T >= 1 && std::ssize(lengths) <= T + 1,
                 "{} samples of {} tokens with lengths up to {}", samples, T, lengths.size());
  // Documents longer than d have Σ (n - d) pairs that far apart: from the longest distance down.
  double documents = 0, pairs = 0;
  for (std::int64_t d = T - 1; d >= 0; --d) {
    const auto at = static_cast<std::size_t>(d);
    if (at + 1 < lengths.size()) documents += static_cast<double>(lengths[at + 1]);
    pairs += documents;
    shares_[at] = pairs / static_cast<double>(samples) / static_cast<double>(T - d);
  }
  for (std::size_t n = 0; n < lengths.size(); ++n) {
    const double tokens = static_cast<double>(n) * static_cast<double>(lengths[n]) / static_cast<double>(samples);
    work_.tokens += tokens;
    work_.squares += tokens * static_cast<double>(n);
  }
}

DocumentPairs::DocumentPairs(std::span<const Weighted> all) : shares_(all[0].pairs->shares_.size()) {
  double total = 0;
  for (const Weighted& one : all) total += one.weight;
  for (const auto& [pairs, weight] : all) {
    LOCKSTEP_CHECK(pairs->shares_.size() == shares_.size(), "samples of {} and {} tokens", pairs->shares_.size(),
                   shares_.size());
    const double share = total > 0 ? weight / total : 1.0 / static_cast<double>(all.size());
    for (std::size_t d = 0; d < shares_.size(); ++d) shares_[d] += share * pairs->shares_[d];
    work_.tokens += share * pairs->work_.tokens;
    work_.squares += share * pairs->work_.squares;
  }
}

std::shared_ptr<const DocumentPairs> DocumentPairs::in_row(std::int64_t samples, std::int64_t multiple) const {
  const auto n = static_cast<double>(samples);
  const std::int64_t tokens = std::max<std::int64_t>(1, std::llround(n * work_.tokens)),
                     N = std::min(round_up(tokens, multiple), samples * length());
  std::shared_ptr<DocumentPairs> row(new DocumentPairs);
  row->work_ = {n * work_.tokens, n * work_.squares};
  row->shares_.resize(static_cast<std::size_t>(N));
  double near = 0;
  for (std::int64_t d = 0; d < std::min(N, length()); ++d) {
    const double apart = n * shares_[static_cast<std::size_t>(d)] * static_cast<double>(length() - d);
    row->shares_[static_cast<std::size_t>(d)] = apart / static_cast<double>(N - d);
    near += apart;
  }
  if (near > 0)
    for (double& share : row->shares_) share *= n * all_pairs() / near;
  return row;
}

double DocumentPairs::pairs(std::int64_t query, std::int64_t key, std::int64_t n) const {
  const std::int64_t between = query - key;
  LOCKSTEP_CHECK(between >= 0 && n >= 0, "queries from {} on against keys from {} on", query, key);
  double sum = 0;
  for (std::int64_t d = std::max<std::int64_t>(0, between - n + 1); d < std::min(between + n, std::ssize(shares_)); ++d)
    sum += static_cast<double>(n - std::abs(d - between)) * shares_[static_cast<std::size_t>(d)];
  return sum;
}

}  // namespace lockstep
