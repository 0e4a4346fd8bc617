// Largest magnitudes that a kernel finds on its way are those of what it has written; scales at the ends of the range.
#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "kernels/fp8_scale.h"
#include "kernels/matmul.h"
#include "support/fused_quantization.h"
#include "support/measured_kernels.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

double largest_magnitude(const Tensor& t) {
  double most = 0;
  for (const double v : TensorBox::read(t))
    most = std::isnan(v) || std::isnan(most) ? NAN : std::max(most, std::abs(v));
  return most;
}

TEST(Quantize, TheLargestMagnitudeFoundOnTheWayIsThatOfWhatWasWritten) {
  TensorBox box;
  int kernels = 0;
  const MeasuredKernels measured{.room = [&](const Shape& shape, DType type) { return box.make(type, shape); },
                                 .normal = [&](const Shape& shape, std::uint64_t key,
                                               double std) { return box.make(DType::bf16, shape, normal(std), key); },
                                 .stream = box.stream(),
                                 .take =
                                     [&](const std::string& name, const Tensor& written, const Tensor& found) {
                                       if (written.contiguous()) {  // else amax() alone says
                                         const double want = largest_magnitude(written),
                                                      got = TensorBox::read(found, 0);
                                         EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
                                             << name << ": " << got << ", not " << want;
                                       }
                                       const Tensor after = box.make(DType::f32, {1});
                                       amax({.amax = after, .x = written}, box.stream());
                                       EXPECT_EQ(TensorBox::bytes(found), TensorBox::bytes(after)) << name;
                                       ++kernels;
                                     }};
  measured.run_all();
  EXPECT_EQ(kernels, 12 * 14);
}

// What joins is the larger of both; NaN stays.
TEST(Quantize, TheLargestMagnitudeOfTwoTensorsIsTheLargerOne) {
  TensorBox box;
  const Tensor x = box.make(DType::bf16, {16, 48}, normal(), 1), found = box.make(DType::f32, {1}, constant(1e3));
  const double most = largest_magnitude(x);
  amax({.amax = found, .x = x, .joins = true}, box.stream());
  EXPECT_EQ(TensorBox::read(found, 0), 1e3);
  amax({.amax = found, .x = x}, box.stream());
  EXPECT_EQ(TensorBox::read(found, 0), most);
  TensorBox::write(found, 0, most / 2);
  amax({.amax = found, .x = x, .joins = true}, box.stream());
  EXPECT_EQ(TensorBox::read(found, 0), most);
  TensorBox::write(found, 0, NAN);
  amax({.amax = found, .x = x, .joins = true}, box.stream());
  EXPECT_TRUE(std::isnan(TensorBox::read(found, 0)));
}

TEST(Quantize, WhatIsWrittenInFp8AloneHasTheBytesOfWhatIsWrittenInBf16First) {
  TensorBox box;
  FusedQuantization{
      .room = [&](const Shape& shape, DType type) { return box.make(type, shape); },
      .normal = [&](const Shape& shape, std::uint64_t key,
                    double std) { return box.make(DType::bf16, shape, normal(std), key); },
      .stream = box.stream(),
      .equal = [&](const std::string& name, const Tensor& fused,
                   const Tensor& apart) { EXPECT_EQ(TensorBox::bytes(fused), TensorBox::bytes(apart)) << name; }}
      .run_all();
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
