// Which source of a mixture the n-th sample comes from, as a function of n alone.
//
// Between two changes of the weights the assignment is periodic. The period is D samples, of which source i has q_i,
// with sum(q) = D: weights in a ratio of whole numbers up to 65,536 are held exactly (to 1e-10), others are rounded to
// 65,536ths. Inside a period, the k-th sample of source i comes not before position floor(k·D / q_i) and before ceil((k
// + 1)·D / q_i), and at each position the source whose sample is due first is taken, of equal ones the first. (These
// windows can all be kept: Baruah and others, "Proportionate progress".) So of the first n samples since the weights
// changed, source i has n·q_i / D of them with an error below 1, for each n and all sources at once, and place_of(n) is
// a lookup in a table of one period: O(1), plus a search among the phases.
//
// A phase begins where a weight changes, or where a source has given all its epochs: from there its weight is 0, and
// the others have its share by their weights. A sample's index counts within its source, over all phases; which sample
// of the source that is, is the sampler's choice (sampler.h), so each epoch of a source has each of its samples once.
//
// Memory: up to 256 KiB per phase, of which there are 256 at most.
// Threads: immutable after construction.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "spec/run/source_spec.h"

namespace lockstep {

struct MixedSource {
  std::int64_t samples = 0;  // of an epoch, at least 1
  WeightSteps weight = {};   // shares of samples
  double epochs = 0;         // at most floor(epochs · samples) samples, at least 1; 0: no limit
};

struct MixturePlace {
  std::size_t source = 0;
  std::int64_t index = 0;  // samples of this source before this one
  bool operator==(const MixturePlace&) const = default;
};

class Mixture {
 public:
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kLongestPeriod = 1 << 16;

  // At least one source; where none has a weight above 0, or epochs left, the mixture ends. UserError (usage) when a
  // weight is above 0 and below half a 65,536th of all.
  explicit Mixture(std::span<const MixedSource> sources);

  // Samples until all sources have given their epochs, as far as the weights let them.
  std::int64_t samples() const { return samples_; }
  MixturePlace place_of(std::int64_t n) const;  // n in [0, samples())
  // How many of the first n are this source's.
  std::int64_t count(std::size_t source, std::int64_t n) const;

  struct Phase {
    std::int64_t from = 0;                 // sample
    std::vector<std::int64_t> per_period;  // q
    std::vector<std::int64_t> before;      // samples of each source in the phases before
    std::vector<std::uint16_t> source_at;  // of each position of the period
    std::vector<std::uint16_t> index_at;   // of its source's in the period
  };
  std::span<const Phase> phases() const { return phases_; }

 private:
  const Phase& phase_of(std::int64_t n) const;

  std::vector<Phase> phases_;
  std::int64_t samples_ = kUnlimited;
};

// Whole numbers in the ratio of these weights, as near as a sum of at most `most` allows: exact where such numbers
// exist. Zero for zero, else at least 1; not all weights are 0.
std::vector<std::int64_t> whole_shares(std::span<const double> weights, std::int64_t most);

}  // namespace lockstep
