#include "kernels/norm_sum.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/operands.h"

namespace lockstep {

void norm_sum(const NormSumArgs& a, Stream& stream) {
  Operands("norm_sum", stream)
      .have_flat("bins", a.bins, {kNormBins}, DType::i64)
      .floats("x", a.x)
      .have_flat("x", a.x, {a.x.elements()}, a.x.dtype());
  LOCKSTEP_CHECK(a.x.elements() <= std::int64_t{1} << 39, "norm_sum: {} elements at once", a.x.elements());
  dispatch(cpu::norm_sum, cuda::norm_sum, meta::norm_sum, a, stream);
}

void norm_add(std::span<std::int64_t> bins, double value) {
  if (!std::isfinite(value)) {
    ++bins[kNormDigits];
    return;
  }
  if (value == 0) return;
  int exponent = 0;
  const auto mantissa = static_cast<std::uint64_t>(std::ldexp(std::frexp(value, &exponent), 53));
  const int place =
      exponent - 53 + kNormBias;  // of the mantissa's lowest bit: 26 for the smallest double, 2123 for the largest
  const unsigned __int128 digits = static_cast<unsigned __int128>(mantissa) << (place & 31);
  for (int i = 0; i < 3; ++i)
    bins[(place >> 5) + i] += static_cast<std::int64_t>(static_cast<std::uint64_t>(digits >> (32 * i)) & 0xffffffffu);
}

void norm_carry(std::span<std::int64_t> bins) {
  for (int i = 0; i + 1 < kNormDigits; ++i) {
    bins[i + 1] += bins[i] >> 32;
    bins[i] &= 0xffffffff;
  }
}

double norm_total(std::span<const std::int64_t> bins) {
  if (bins[kNormDigits] != 0) return std::numeric_limits<double>::quiet_NaN();
  // Carries make the digits canonical, so equal sums look alike however they came about.
  std::int64_t digits[kNormBins];
  std::copy(bins.begin(), bins.end(), digits);
  norm_carry(digits);
  int top = kNormDigits - 1;
  while (top > 0 && digits[top] == 0) --top;
  // The leading 96 bits or more, with a last bit that says whether anything is below: one conversion rounds it all.
  unsigned __int128 leading = 0;
  for (int i = top; i > top - 3; --i) leading = (leading << 32) + static_cast<std::uint64_t>(i >= 0 ? digits[i] : 0);
  for (int i = top - 3; i >= 0; --i)
    if (digits[i] != 0) leading |= 1;
  return std::ldexp(static_cast<double>(leading), 32 * (top - 2) - kNormBias);
}

}  // namespace lockstep
