// How much attention there is in samples that are several documents: the pairs of query and key that see each other,
// as many as are expected where the documents' lengths are known and their places are not.
//
// Two tokens of a sample, d apart, are of one document with a probability that depends on d alone: as many such pairs
// as the documents have, over the T - d that the sample has. So it is exact for a whole sample, Σ n(n + 1)/2, and an
// average for a segment of queries against a segment of keys. Padding counts as nothing.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "spec/model/model_flops.h"

namespace lockstep {

class DocumentPairs {
 public:
  // `samples` samples of T tokens have, all together, lengths[n] documents of n tokens; n <= T.
  DocumentPairs(std::int64_t samples, std::int64_t T, std::span<const std::int64_t> lengths);
  // The mean of several of one T, by weight: of samples from several sources.
  struct Weighted {
    std::shared_ptr<const DocumentPairs> pairs;
    double weight;
  };
  explicit DocumentPairs(std::span<const Weighted> all);

  // Of a row of the tokens of `samples` samples and of no padding, as many tokens as they have on average, rounded up
  // to a multiple that is not above their room. It may be shorter than a document: pairs that far apart are counted as
  // others, so that all of them are.
  std::shared_ptr<const DocumentPairs> in_row(std::int64_t samples, std::int64_t multiple) const;

  std::int64_t length() const { return std::ssize(shares_); }  // T
  // Of a sample: queries [query, query + n) and keys [key, key + n); key <= query.
  double pairs(std::int64_t query, std::int64_t key, std::int64_t n) const;
  double all_pairs() const { return pairs(0, 0, static_cast<std::int64_t>(shares_.size())); }
  const SampleWork& work() const { return work_; }

 private:
  DocumentPairs() = default;
  std::vector<double> shares_;  // by d: the probability
  SampleWork work_;
};

}  // namespace lockstep
