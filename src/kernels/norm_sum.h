// The global gradient norm's sum of squares, exact whatever the order (docs/design.md, "The order of sums").
//
// Elements are squared and added in double within fixed blocks of 256; each block's sum then goes, without rounding,
// into an accumulator of integers: bin i holds multiples of 2^(32 i - kNormBias), so adding blocks, buffers, shards or
// ranks in any order, and adding accumulators bin by bin, gives the same integers. Shards begin at multiples of 256
// elements, so sharding cannot change the norm. The last bin counts blocks that were not finite.
//
// Shapes: x flat (any float type), bins (kNormBins) int64. norm_sum adds x to bins (or starts them anew without
// `accumulate`). norm_total is the value, rounded once from the canonical form: infinity or NaN never come out as a
// number.
#pragma once
#include <cstdint>
#include <span>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

inline constexpr int kNormBlock = 256;
inline constexpr int kNormDigits = 71;  // of 32 bits, from 2^-1152 to 2^1120: all that sums of doubles can be
inline constexpr int kNormBins = kNormDigits + 1;  // and the count of what was not finite
inline constexpr int kNormBias = 1152;

struct NormSumArgs {
  Tensor bins;
  ConstTensor x;
  bool accumulate = false;
};

using NormSum = void(const NormSumArgs&, Stream&);
NormSum norm_sum;
namespace cpu {
NormSum norm_sum;
}
namespace cuda {
NormSum norm_sum;
}
namespace meta {
NormSum norm_sum;
}

// Makes every digit but the last less than 2^32, the value unchanged. Bins have room for 2^31 blocks (2^39 elements):
// what adds up more than that carries in between.
void norm_carry(std::span<std::int64_t> bins);
// Adds one non-negative double to the bins, exactly.
void norm_add(std::span<std::int64_t> bins, double value);
// The sum the bins stand for; NaN when anything added was not finite.
double norm_total(std::span<const std::int64_t> bins);

}  // namespace lockstep
