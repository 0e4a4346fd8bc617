#include "kernels/norm_sum.h"

#include <cmath>
#include <limits>

#include "kernels/operands.h"

namespace lockstep {

void norm_sum(const NormSumArgs& a, Stream& stream) {
  Operands("norm_sum", stream)
      .have_flat("bins", a.bins, {kNormBins}, DType::i64)
      .floats("x", a.x)
      .have_flat("x", a.x, {a.x.elements()}, a.x.dtype());
  dispatch(cpu::norm_sum, meta::norm_sum, a, stream);
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

double norm_total(std::span<const std::int64_t> bins) {
  if (bins[kNormDigits] != 0) return std::numeric_limits<double>::quiet_NaN();
  // Carries make the digits canonical, so equal sums look alike however they came about.
  std::int64_t digits[kNormDigits];
  std::int64_t carry = 0;
  for (int i = 0; i < kNormDigits; ++i) {
    const std::int64_t value = bins[i] + carry;
    digits[i] = value & 0xffffffff;
    carry = value >> 32;
  }
  if (carry != 0) return std::numeric_limits<double>::infinity();
  double total = 0;
  for (int i = kNormDigits - 1; i >= 0; --i)
    if (digits[i] != 0) total += std::ldexp(static_cast<double>(digits[i]), 32 * i - kNormBias);
  return total;
}

}  // namespace lockstep
