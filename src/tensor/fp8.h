// The two 8-bit floats: E4M3 (three bits of mantissa, up to 448) for activations and weights, E5M2 (two bits, up to
// 57344) for gradients.
//
// Conversion from float rounds to nearest, ties to even, and what is larger than the largest number becomes that: a
// tensor is divided by its scale first (kernels/quantize.h), so nothing is. A NaN stays one. E4M3 has no infinity; that
// of E5M2 is never made.
#pragma once
#include <array>
#include <bit>
#include <cstdint>

#include "tensor/dtype.h"

namespace lockstep {

namespace detail {

constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

template <int kMantissa, int kBias, std::uint8_t kLargest>
constexpr float fp8_value(std::uint8_t bits) {
  const int exponent = (bits & 0x7f) >> kMantissa, mantissa = bits & ((1 << kMantissa) - 1);
  float magnitude = 0;
  if ((bits & 0x7f) > kLargest)  // E5M2's infinity is the first code beyond
    magnitude = std::bit_cast<float>(kMantissa == 2 && mantissa == 0 ? 0x7f800000u : 0x7fc00000u);
  else if (exponent == 0)
    magnitude = static_cast<float>(mantissa) * power_of_two(1 - kBias - kMantissa);
  else
    magnitude = static_cast<float>((1 << kMantissa) + mantissa) * power_of_two(exponent - kBias - kMantissa);
  return bits & 0x80 ? -magnitude : magnitude;
}

template <int kMantissa, int kBias, std::uint8_t kLargest>
inline constexpr std::array<float, 256> fp8_values = [] {
  std::array<float, 256> all{};
  for (int b = 0; b < 256; ++b)
    all[static_cast<std::size_t>(b)] = fp8_value<kMantissa, kBias, kLargest>(static_cast<std::uint8_t>(b));
  return all;
}();

}  // namespace detail

template <int kMantissa, int kBias, std::uint8_t kLargest>
struct Fp8 {
  std::uint8_t bits;
  Fp8() = default;
  explicit constexpr Fp8(float value) : bits(round(value)) {}
  explicit constexpr operator float() const { return detail::fp8_values<kMantissa, kBias, kLargest>[bits]; }

  static constexpr float largest() { return detail::fp8_value<kMantissa, kBias, kLargest>(kLargest); }

 private:
  static constexpr std::uint8_t round(float value) {
    constexpr std::uint32_t shift = 23 - kMantissa;
    const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 24) & 0x80u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
    if (magnitude >= std::bit_cast<std::uint32_t>(largest())) return static_cast<std::uint8_t>(sign | kLargest);
    if (magnitude < std::bit_cast<std::uint32_t>(detail::power_of_two(1 - kBias))) {
      // Subnormal: a float in whose last place such a number counts one leaves exactly the bits that remain.
      const float base = detail::power_of_two(1 - kBias + static_cast<int>(shift));
      const std::uint32_t sum = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + base);
      return static_cast<std::uint8_t>(sign | (sum - std::bit_cast<std::uint32_t>(base)));
    }
    const std::uint32_t odd = (magnitude >> shift) & 1u, half = (1u << (shift - 1)) - 1u;
    return static_cast<std::uint8_t>(
        sign | ((magnitude - (static_cast<std::uint32_t>(127 - kBias) << 23) + half + odd) >> shift));
  }
};

using f8e4m3 = Fp8<3, 7, 0x7e>;
using f8e5m2 = Fp8<2, 15, 0x7b>;
static_assert(sizeof(f8e4m3) == 1 && f8e4m3::largest() == 448 && f8e5m2::largest() == 57344);

template <>
inline constexpr DType dtype_of<f8e4m3> = DType::f8e4m3;
template <>
inline constexpr DType dtype_of<f8e5m2> = DType::f8e5m2;

}  // namespace lockstep
