// Largest magnitudes that a kernel finds on its way are those of what it has written; scales at the ends of the range.
#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "kernels/fp8_scale.h"
#include "kernels/matmul.h"
#include "kernels/swiglu.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

TEST(Quantize, TheLargestMagnitudeFoundOnTheWayIsThatOfWhatWasWritten) {
  TensorBox box;
  for (const auto& [rows, width] : {std::pair<std::int64_t, std::int64_t>{3, 16}, {40, 352}}) {
    const Tensor gate_up = box.make(DType::bf16, {rows, 2 * width}, normal(3), 1),
                 dy = box.make(DType::bf16, {rows, width}, normal(1e-3), 2);
    const Tensor y = box.make(DType::bf16, {rows, width}), d_gate_up = box.make(DType::bf16, {rows, 2 * width});
    const Tensor found = box.make(DType::f32, {1}), after = box.make(DType::f32, {1});
    const auto largest_of = [](const Tensor& t) {
      double most = 0;
      for (const double v : TensorBox::read(t)) most = std::max(most, std::abs(v));
      return most;
    };
    swiglu_forward({.y = y, .gate_up = gate_up, .amax = found}, box.stream());
    EXPECT_EQ(TensorBox::read(found, 0), largest_of(y));
    amax({.amax = after, .x = y}, box.stream());
    EXPECT_EQ(TensorBox::bytes(found), TensorBox::bytes(after));
    swiglu_backward({.d_gate_up = d_gate_up, .dy = dy, .gate_up = gate_up, .amax = found}, box.stream());
    EXPECT_EQ(TensorBox::read(found, 0), largest_of(d_gate_up));
  }
}

// Products read 16 bytes at a time: a result elsewhere is refused here, not met there.
TEST(Quantize, AResultThatDoesNotBeginAtAMultipleOf16BytesIsRefused) {
  TensorBox box;
  const Tensor x = box.make(DType::bf16, {16, 16}, normal(), 1), amax = box.make(DType::f32, {1}, constant(1)),
               scale = box.make(DType::f32, {1}, constant(1)), room = box.make(DType::f8e4m3, {2 * 16 * 16}),
               c = box.make(DType::bf16, {16, 16});
  const auto at = [&](std::int64_t first) { return room.slice(0, first, 16 * 16).reshape({16, 16}); };
  for (const std::int64_t first : {0, 16, 1, 8}) {
    const Tensor q = at(first);
    const auto straight = [&] { quantize({.q = q, .scale = scale, .x = x, .amax = amax}, box.stream()); };
    const auto turned = [&] { quantize({.turned = q, .scale = scale, .x = x, .amax = amax}, box.stream()); };
    const auto product = [&](const Tensor& a, const Tensor& b) {
      matmul({.c = c, .a = a, .b = b, .transpose_b = true, .scale_a = scale, .scale_b = scale}, box.stream());
    };
    if (first % 16 == 0) {
      straight();
      turned();
      product(q, q);
    } else {
      EXPECT_THROW(straight(), ProgramError);
      EXPECT_THROW(turned(), ProgramError);
      EXPECT_THROW(product(q, at(0)), ProgramError);
      EXPECT_THROW(product(at(0), q), ProgramError);
    }
  }
}

// Every scale is a power of two that brings the largest magnitude into range, and its half would not.
TEST(Quantize, EveryScaleIsTheSmallestPowerOfTwoThatFits) {
  for (const auto& [exponent, top] : {std::pair{8, 448.0}, {15, 57344.0}})
    for (int power = -133; power < 128; ++power)
      for (const float mantissa : {1.0f, 1.5f, 1.75f, 1.7578125f, 1.9921875f}) {
        const float amax = std::ldexp(mantissa, power);
        const float scale = std::bit_cast<float>(fp8_scale_bits(std::bit_cast<std::uint32_t>(amax), exponent));
        int whole = 0;
        ASSERT_EQ(std::frexp(scale, &whole), 0.5f) << amax;
        ASSERT_LE(amax / static_cast<double>(scale), top) << amax;
        if (scale > 0x1p-62f) {
          ASSERT_GT(amax / (scale / 2.0), top) << amax;
        }
        ASSERT_GE(scale, 0x1p-62f);
      }
  EXPECT_EQ(fp8_scale_bits(0, 8), std::bit_cast<std::uint32_t>(1.0f));
  for (const float bad : {float{INFINITY}, float{NAN}})
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(fp8_scale_bits(std::bit_cast<std::uint32_t>(bad), 8))));
}

}  // namespace
}  // namespace lockstep::tests
