// The 16-bit floats: every value there is, and every rounding, against one computed in double.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

// The value of a pattern of bits by the definition of the format.
double value_of(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1, exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double mantissa = bits & ((1 << mantissa_bits) - 1), sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(1 + std::ldexp(mantissa, -mantissa_bits), exponent - bias);
}

template <class Half>
struct Format;
template <>
struct Format<bf16> {
  static constexpr int exponent_bits = 8, mantissa_bits = 7;
};
template <>
struct Format<f16> {
  static constexpr int exponent_bits = 5, mantissa_bits = 10;
};

template <class Half>
class HalfFloat : public ::testing::Test {
 protected:
  static constexpr int exponent_bits = Format<Half>::exponent_bits, mantissa_bits = Format<Half>::mantissa_bits;
  static double value(std::uint32_t bits) {
    return value_of(static_cast<std::uint16_t>(bits), exponent_bits, mantissa_bits);
  }
  static Half of(std::uint32_t bits) { return std::bit_cast<Half>(static_cast<std::uint16_t>(bits)); }
  static constexpr std::uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
};

using Halves = ::testing::Types<bf16, f16>;
TYPED_TEST_SUITE(HalfFloat, Halves);

TYPED_TEST(HalfFloat, EveryPatternHasTheValueOfTheFormat) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const double got = static_cast<float>(this->of(bits)), want = this->value(bits);
    if (std::isnan(want))
      ASSERT_TRUE(std::isnan(got)) << bits;
    else
      ASSERT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(want)) << bits;
  }
}

TYPED_TEST(HalfFloat, EveryValueComesBackFromFloat) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const TypeParam back(static_cast<float>(this->of(bits)));
    if (std::isnan(this->value(bits)))
      ASSERT_TRUE(std::isnan(static_cast<float>(back))) << bits;
    else
      ASSERT_EQ(back.bits, bits);
  }
}

// Between two neighbours: the middle goes to the even one, and one float to either side of it to the nearer.
TYPED_TEST(HalfFloat, RoundsToNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits + 1 < this->infinity; ++bits) {
    const double low = this->value(bits), high = this->value(bits + 1), middle = (low + high) / 2;
    const float tie = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(tie), middle) << "the middle is not a float";
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const float sign : {1.0f, -1.0f}) {
      const std::uint32_t top = sign < 0 ? 0x8000u : 0;
      ASSERT_EQ(TypeParam(sign * tie).bits, even | top) << bits;
      ASSERT_EQ(TypeParam(sign * std::nextafter(tie, 0.0f)).bits, bits | top) << bits;
      ASSERT_EQ(TypeParam(sign * std::nextafter(tie, INFINITY)).bits, (bits + 1) | top) << bits;
    }
  }
}

TYPED_TEST(HalfFloat, OverflowsToInfinityFromHalfAStepBeyondTheLargest) {
  const double largest = this->value(this->infinity - 1), step = largest - this->value(this->infinity - 2);
  const float beyond = static_cast<float>(largest + step / 2);
  ASSERT_EQ(static_cast<double>(beyond), largest + step / 2);
  EXPECT_EQ(TypeParam(std::nextafter(beyond, 0.0f)).bits, this->infinity - 1);
  EXPECT_EQ(TypeParam(beyond).bits, this->infinity);
  EXPECT_EQ(TypeParam(-beyond).bits, this->infinity | 0x8000u);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::max()).bits, this->infinity);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::infinity()).bits, this->infinity);
  EXPECT_EQ(TypeParam(-std::numeric_limits<float>::infinity()).bits, this->infinity | 0x8000u);
}

TYPED_TEST(HalfFloat, ANanStaysANanWhateverItsBits) {
  for (std::uint32_t mantissa = 1; mantissa < 0x800000u; mantissa = mantissa * 2 + 1)
    for (const std::uint32_t low : {mantissa, mantissa ^ 1u, 0x400000u})
      for (const std::uint32_t sign : {0u, 0x80000000u}) {
        const std::uint32_t bits = sign | 0x7f800000u | (low == 0 ? 1 : low);
        ASSERT_TRUE(std::isnan(static_cast<float>(TypeParam(std::bit_cast<float>(bits))))) << std::hex << bits;
      }
}

TYPED_TEST(HalfFloat, KeepsTheSignOfZero) {
  EXPECT_EQ(TypeParam(0.0f).bits, 0);
  EXPECT_EQ(TypeParam(-0.0f).bits, 0x8000);
  EXPECT_EQ(TypeParam(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
}

TYPED_TEST(HalfFloat, IsKnownWhenCompiling) { static_assert(static_cast<float>(TypeParam(1.5f)) == 1.5f); }

TEST(DType, KnowsSizesNamesAndAccumulators) {
  EXPECT_EQ(size_of(DType::f64), 8);
  EXPECT_EQ(size_of(DType::f32), 4);
  EXPECT_EQ(size_of(DType::bf16), 2);
  EXPECT_EQ(size_of(DType::f16), 2);
  EXPECT_EQ(size_of(DType::i32), 4);
  EXPECT_EQ(size_of(DType::i64), 8);
  for (const DType t : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    EXPECT_TRUE(is_float(t));
    EXPECT_EQ(accumulator_of(t), t == DType::f64 ? DType::f64 : DType::f32);
  }
  EXPECT_FALSE(is_float(DType::i32));
  EXPECT_FALSE(is_float(DType::i64));
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(dtype_of<float>, DType::f32);
  EXPECT_EQ(dtype_of<bf16>, DType::bf16);
  EXPECT_EQ(dtype_of<f16>, DType::f16);
  EXPECT_EQ(dtype_of<double>, DType::f64);
  EXPECT_EQ(dtype_of<std::int32_t>, DType::i32);
  EXPECT_EQ(dtype_of<std::int64_t>, DType::i64);
}

}  // namespace
}  // namespace lockstep
