// The cpu's vectors convert to and from fp16 as the plain conversions of tensor/dtype.h do: every pattern of bits, and
// floats around every rounding, in bodies and tails.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/elementwise.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

TEST(HalfConversion, OfVectorsIsThePlainOneForEveryPattern) {
  TensorBox box;
  constexpr std::int64_t n = 65536 + 7;  // a tail as well
  const Tensor half = box.make(DType::f16, {n}), wide = box.make(DType::f32, {n}), back = box.make(DType::f16, {n});
  for (std::int64_t i = 0; i < n; ++i) half.data<f16>()[i].bits = static_cast<std::uint16_t>(i);
  cast({.y = wide, .x = half}, box.stream());
  cast({.y = back, .x = wide}, box.stream());
  for (std::int64_t i = 0; i < n; ++i) {
    const float want = static_cast<float>(half.data<f16>()[i]), got = wide.data<float>()[i];
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << i;
      ASSERT_TRUE(std::isnan(static_cast<float>(back.data<f16>()[i]))) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want)) << i;
      ASSERT_EQ(back.data<f16>()[i].bits, half.data<f16>()[i].bits) << i;
    }
  }
}

// Middles of neighbours, subnormal ones too, and the floats beside them; what underflows and what overflows.
TEST(HalfConversion, OfVectorsRoundsAsThePlainOne) {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto value = [](std::uint32_t b) {
      return static_cast<double>(static_cast<float>(std::bit_cast<f16>(static_cast<std::uint16_t>(b))));
    };
    const double next = bits + 1 < 0x7c00 ? value(bits + 1) : 65536;
    const auto middle = static_cast<float>((value(bits) + next) / 2);
    for (const float sign : {1.0f, -1.0f})
      for (const float v : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)})
        values.push_back(sign * v);
  }
  for (const float v : {1e-10f, 1e5f, std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min()})
    values.insert(values.end(), {v, -v});
  TensorBox box;
  const auto n = static_cast<std::int64_t>(values.size());
  const Tensor wide = box.make(DType::f32, {n}), half = box.make(DType::f16, {n});
  std::copy(values.begin(), values.end(), wide.data<float>());
  cast({.y = half, .x = wide}, box.stream());
  for (std::int64_t i = 0; i < n; ++i)
    ASSERT_EQ(half.data<f16>()[i].bits, f16(values[static_cast<std::size_t>(i)]).bits)
        << values[static_cast<std::size_t>(i)];
}

}  // namespace
}  // namespace lockstep::tests
