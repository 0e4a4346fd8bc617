// The global order of samples: the n-th sample that a run consumes, over all ranks, as a function of n alone.
//
// There is no state, so any rank can ask for any n, and a run resumes at n in whatever layout (docs/design.md, rule 2).
// Epoch e is n in [e·N, (e+1)·N): it visits each of the N samples once, in a random order of its own. The order is a
// permutation of [0, N) computed point by point: a Feistel network over Philox, keyed by seed and epoch, permutes the
// next 4^h >= N numbers, and a result outside [0, N) is sent through again until it is inside (cycle walking). That is
// twelve Philox calls per walk, at most four walks on average and no memory, for N of any size.
//
// In order (for endless data): n itself, from the beginning again after N.
#pragma once
#include <cstdint>

#include "data/dataset.h"

namespace lockstep {

class Sampler {
 public:
  enum class Order { shuffled, in_order };

  Sampler(std::int64_t samples, std::uint64_t seed, Order order = Order::shuffled);  // samples in [1, 2^62]
  // Endless data in order, all other data shuffled.
  Sampler(const Dataset& dataset, std::uint64_t seed);

  std::int64_t samples() const { return samples_; }
  std::int64_t sample_of(std::int64_t n) const;  // n >= 0; in [0, samples)

 private:
  std::uint64_t permuted(std::uint64_t number, std::uint64_t epoch) const;

  std::int64_t samples_;
  std::uint64_t key_;
  Order order_;
  int half_bits_;  // h
};

}  // namespace lockstep
