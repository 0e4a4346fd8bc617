// The scale of a tensor whose largest magnitude is known (kernels/quantize.h), the same bits on every device.
#pragma once
#include <cstdint>

namespace lockstep {

inline constexpr int kLeastScaleExponent = -62;  // the product of two scales is a normal number

// Of two scales' exponents: the largest numbers of both types are 1.75 times a power of two, 2^8 or 2^15.
// `bits` are those of amax as a float, not negative; the result are those of the scale.
#if defined(__CUDACC__)
__host__ __device__
#endif
    inline constexpr std::uint32_t
    fp8_scale_bits(std::uint32_t bits, int largest_exponent) {
  if (bits == 0) return 0x3f800000u;
  if (bits >= 0x7f800000u) return 0x7fc00000u;
  int exponent = static_cast<int>(bits >> 23) - 127 - largest_exponent;  // of a subnormal far below the least one
  if ((bits & 0x7fffffu) > 0x600000u) ++exponent;
  if (exponent < kLeastScaleExponent) exponent = kLeastScaleExponent;
  return static_cast<std::uint32_t>(exponent + 127) << 23;
}

}  // namespace lockstep
