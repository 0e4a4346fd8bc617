// The norm's integer bins on the device (kernels/norm_sum.h): the same integers and the same total as the host's
// norm_add and norm_total, in integer arithmetic throughout; only the last conversion rounds.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/norm_sum.h"

namespace lockstep::cuda {

// What one non-negative finite double adds: digit[i] to bin `first + i`. A number has one way of being written in
// digits below 2^32, so these are the host's, although it takes the mantissa another way.
struct NormDigits {
  int first;
  std::uint32_t digit[3];
};

__host__ __device__ inline NormDigits norm_digits(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  // Subnormal numbers have the place of the smallest normal ones and no hidden bit.
  const std::uint64_t mantissa = exponent == 0 ? fraction : fraction | std::uint64_t{1} << 52;
  const int place = (exponent == 0 ? 1 : exponent) - 1075 + kNormBias, shift = place & 31;
  const std::uint64_t low = mantissa << shift, high = shift == 0 ? 0 : mantissa >> (64 - shift);
  return {place >> 5,
          {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32), static_cast<std::uint32_t>(high)}};
}

// The value of all kNormBins bins; NaN when anything added was not finite.
__host__ __device__ inline double total_of(const std::int64_t* bins) {
  if (bins[kNormDigits] != 0) return std::numeric_limits<double>::quiet_NaN();
  std::uint32_t digits[kNormDigits];
  std::int64_t carry = 0;
  for (int i = 0; i + 1 < kNormDigits; ++i) {
    carry += bins[i];
    digits[i] = static_cast<std::uint32_t>(carry & 0xffffffff);
    carry >>= 32;
  }
  if (bins[kNormDigits - 1] + carry != 0) return std::numeric_limits<double>::infinity();  // 2^1088 and above
  int top = kNormDigits - 2;
  while (top > 0 && digits[top] == 0) --top;
  if (digits[top] == 0) return 0;
  // The leading 64 bits, the first of them 1; the last also says whether anything is below, so that the conversion's
  // rounding is that of the whole.
  std::uint64_t leading = static_cast<std::uint64_t>(digits[top]) << 32 | (top >= 1 ? digits[top - 1] : 0);
  std::uint32_t next = top >= 2 ? digits[top - 2] : 0;
  int shift = 0;
  for (; leading >> 63 == 0; ++shift) {
    leading = leading << 1 | next >> 31;
    next <<= 1;
  }
  bool below = next != 0;
  for (int i = top - 3; i >= 0; --i) below = below || digits[i] != 0;
  return std::ldexp(static_cast<double>(leading | (below ? 1 : 0)), 32 * (top - 1) - shift - kNormBias);
}

}  // namespace lockstep::cuda
