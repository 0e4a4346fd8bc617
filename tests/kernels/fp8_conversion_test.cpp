// The 8-bit floats against their definition: every code, and the nearest one of all codes for many numbers.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tensor/fp8.h"

namespace lockstep {
namespace {

// A code's value by the definition: sign, exponent, mantissa.
double value_of(int code, int mantissa_bits, int bias) {
  const int exponent = (code & 0x7f) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const double fraction = mantissa / std::exp2(mantissa_bits);
  const double size = exponent == 0 ? fraction * std::exp2(1 - bias) : (1 + fraction) * std::exp2(exponent - bias);
  return code & 0x80 ? -size : size;
}

template <class Q>
struct Format;
template <>
struct Format<f8e4m3> {
  static constexpr int kMantissa = 3, kBias = 7, kLargest = 0x7e;
};
template <>
struct Format<f8e5m2> {
  static constexpr int kMantissa = 2, kBias = 15, kLargest = 0x7b;
};

template <class Q>
class Fp8Conversion : public ::testing::Test {
 protected:
  static float to_float(int code) {
    Q q;
    q.bits = static_cast<std::uint8_t>(code);
    return static_cast<float>(q);
  }
  // The code whose value is nearest, the even one of two, the largest beyond it.
  static int nearest(double x) {
    using F = Format<Q>;
    int best = 0;
    double distance = INFINITY;
    for (int code = 0; code <= F::kLargest; ++code) {
      const double d = std::abs(value_of(code, F::kMantissa, F::kBias) - std::abs(x));
      if (d < distance || (d == distance && code % 2 == 0)) best = code, distance = d;
    }
    return best | (std::signbit(x) ? 0x80 : 0);
  }
};
using Both = ::testing::Types<f8e4m3, f8e5m2>;
TYPED_TEST_SUITE(Fp8Conversion, Both);

TYPED_TEST(Fp8Conversion, EveryCodeHasItsValueAndComesBack) {
  using F = Format<TypeParam>;
  for (int code = 0; code < 256; ++code) {
    const float value = this->to_float(code);
    if ((code & 0x7f) > F::kLargest) {
      EXPECT_FALSE(std::isfinite(value)) << code;
      continue;
    }
    EXPECT_EQ(value, value_of(code, F::kMantissa, F::kBias)) << code;
    EXPECT_EQ(TypeParam(value).bits, code);
  }
}

TYPED_TEST(Fp8Conversion, RoundsToTheNearestAndTiesToEven) {
  using F = Format<TypeParam>;
  std::vector<float> numbers{0.0f, -0.0f, 1e-30f, 1e5f, -1e9f, 0x1p-149f};
  for (int code = 0; code < F::kLargest; ++code) {  // codes, the middles between them, and what lies beside those
    const float low = this->to_float(code), high = this->to_float(code + 1), middle = (low + high) / 2;
    for (const float x : {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)})
      for (const float sign : {1.0f, -1.0f}) numbers.push_back(sign * x);
  }
  std::uint32_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 1664525u + 1013904223u;
    numbers.push_back(std::ldexp(static_cast<float>(state >> 8) - 0x1p23f, static_cast<int>(state & 31) - 40));
  }
  for (const float x : numbers) EXPECT_EQ(TypeParam(x).bits, this->nearest(x)) << x;
}

TYPED_TEST(Fp8Conversion, IsFiniteOfInfinityAndKeepsANaN) {
  EXPECT_EQ(static_cast<float>(TypeParam(INFINITY)), TypeParam::largest());
  EXPECT_EQ(static_cast<float>(TypeParam(-INFINITY)), -TypeParam::largest());
  EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(NAN))));
}

}  // namespace
}  // namespace lockstep
