// Softmax cross-entropy of rows whose vocabulary is split over ranks: each has some columns of the logits.
//
// There are two ops, with an all-gather of three numbers per row in between. split_cross_entropy_statistics reads this
// rank's columns alone: statistics (N, 3), in the accumulator type, has for each row the largest logit, the sum of
// exp(logit - largest), and the target's logit where these columns hold it, else 0. With no columns, or columns that
// are all -inf, the largest is -inf and the sum 0: they add nothing to what others have. split_cross_entropy is given
// the statistics (R, N, 3) of all ranks, in rank order, and combines them in that order, so that all ranks have the
// same bits: with M the largest of all, S the sum of sum·exp(largest - M), and t the sum of the target's logits,
//   losses[n] = log S + M - t,   dlogits = (exp(logit - M) / S - onehot) · scale,   likeliest[n] = t ≥ M.
//
// Shapes, types, scale, losses, likeliest, the ignored target, and where dlogits may be are as in cross_entropy.h;
// dlogits may be none, and the logits are not read then. The logits (N, V) hold the columns [first, first + valid) of
// the vocabulary. Columns from `valid` on are padding: what they hold (even NaN) changes nothing, and their gradient is
// 0. Targets are of the whole vocabulary. One that is negative, and not kIgnoredTarget, throws ProgramError on the cpu
// and makes its row NaN on cuda. One that no rank holds cannot be told from one that another holds: whoever reads data
// checks it before.
//
// The order of a row's sums is a function of `valid` and the type: the same bits for any number of threads.
#pragma once
#include <cstdint>

#include "kernels/cross_entropy.h"

namespace lockstep {

inline constexpr std::int64_t kLossStatistics = 3;  // numbers per row

struct SplitCrossEntropyStatisticsArgs {
  Tensor statistics;
  ConstTensor logits;
  ConstTensor targets;
  std::int64_t first;
  std::int64_t valid;
};

struct SplitCrossEntropyArgs {
  Tensor losses;
  Tensor dlogits;
  ConstTensor logits;
  ConstTensor targets;
  ConstTensor statistics;
  ConstTensor scale;
  std::int64_t first;
  std::int64_t valid;
  Tensor likeliest = {};
};

using SplitCrossEntropyStatistics = void(const SplitCrossEntropyStatisticsArgs&, Stream&);
using SplitCrossEntropy = void(const SplitCrossEntropyArgs&, Stream&);
SplitCrossEntropyStatistics split_cross_entropy_statistics;
SplitCrossEntropy split_cross_entropy;
namespace cpu {
SplitCrossEntropyStatistics split_cross_entropy_statistics;
SplitCrossEntropy split_cross_entropy;
}  // namespace cpu
namespace cuda {
SplitCrossEntropyStatistics split_cross_entropy_statistics;
SplitCrossEntropy split_cross_entropy;
}  // namespace cuda
namespace meta {
SplitCrossEntropyStatistics split_cross_entropy_statistics;
SplitCrossEntropy split_cross_entropy;
}  // namespace meta

}  // namespace lockstep
