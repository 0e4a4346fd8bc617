// Heads are copied and added wherever they lie, with one rounding. (Parity, threads, NaN, refusals and what meta
// reads and writes: the table of cases.)
#include "kernels/heads.h"

#include <gmock/gmock.h>

#include "support/devices.h"
#include "support/kernel_cases.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

class CopiedHeads : public ::testing::Test {
 protected:
  // The message of the refusal, or what happened instead.
  std::string refusal(const Tensor& y, const Tensor& x, bool accumulate = false) {
    try {
      copy_heads({.y = y, .x = x, .accumulate = accumulate}, box_.stream(2));
    } catch (const ProgramError& error) {
      return error.what();
    }
    return "it ran";
  }
  TensorBox box_;
};

// In the wider operand's accumulator, then once to y: to the bit.
TEST_F(CopiedHeads, AreRoundedOnce) {
  const Shape shape{1, 3, 2, 33};
  for (const DType to : kFloatTypes)
    for (const DType from : kFloatTypes)
      for (const bool accumulate : {false, true}) {
        const Tensor y = box_.make(to, shape, magnitudes(-6, 6)), x = box_.make(from, shape, magnitudes(-12, 6), 2);
        const std::vector<double> before = box_.read(y);
        copy_heads({.y = y, .x = x, .accumulate = accumulate}, box_.stream());
        const DType wide = to == DType::f64 || from == DType::f64 ? DType::f64 : DType::f32;
        for (std::int64_t i = 0; i < x.elements(); ++i) {
          const double given = box_.read(x, i);
          const double want = round_to(to, accumulate ? round_to(wide, before[i] + given) : given);
          ASSERT_EQ(box_.read(y, i), want) << name_of(from) << " to " << name_of(to) << ", element " << i;
        }
      }
}

// By way of fp32 this would be a tie, and go down.
TEST_F(CopiedHeads, AreNotRoundedTwice) {
  const Shape shape{1, 1, 1, 5};
  for (const auto& [to, half] : {std::pair{DType::bf16, 0x1p-8}, {DType::f16, 0x1p-11}}) {
    const Tensor sum = box_.make(to, shape, constant(1)), copy = box_.make(to, shape);
    copy_heads({.y = sum, .x = box_.make(DType::f64, shape, constant(half + 0x1p-40)), .accumulate = true},
               box_.stream());
    copy_heads({.y = copy, .x = box_.make(DType::f64, shape, constant(1 + half + 0x1p-40))}, box_.stream());
    for (std::int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(box_.read(sum, i), 1 + 2 * half) << name_of(to);
      EXPECT_EQ(box_.read(copy, i), 1 + 2 * half) << name_of(to);
    }
  }
}

TEST_F(CopiedHeads, OfOneTypeKeepTheirBits) {
  const std::vector<double> odd = {-0.0, INFINITY, -INFINITY, NAN, 0x1p-24, 65504, -0x1p-14};
  for (const DType type : kFloatTypes) {
    const Tensor x = box_.make(type, {1, 1, 1, 7}, odd), y = box_.make(type, {1, 1, 1, 7}, constant(3));
    copy_heads({.y = y, .x = x}, box_.stream());
    EXPECT_EQ(box_.bytes(y), box_.bytes(x)) << name_of(type);
  }
}

// Often enough, and with enough rows, that the other threads come in time to take some.
TEST_F(CopiedHeads, HaveTheSameBitsForAnyNumberOfThreads) {
  const Shape shape{2, 1500, 4, 63};
  const Tensor x = box_.make(DType::f32, shape, normal()), y = box_.make(DType::bf16, shape, normal(), 2);
  const auto sum = [&](int threads) {
    const Tensor apart = box_.make(DType::bf16, {2, 1500, 5, 63}).slice(2, 0, 4), dense = box_.make(DType::bf16, shape);
    copy_heads({.y = apart, .x = y}, box_.stream(threads));
    copy_heads({.y = apart, .x = x, .accumulate = true}, box_.stream(threads));
    copy_heads({.y = dense, .x = apart}, box_.stream(threads));
    return box_.bytes(dense);
  };
  const std::vector<std::byte> one = sum(1);
  for (int round = 0; round < 20; ++round) ASSERT_TRUE(sum(3) == one) << "round " << round;
}

// As a cache takes the keys of a fused projection, or a sequence its pieces in another order.
TEST_F(CopiedHeads, MayBeViewsOfOneTensor) {
  constexpr std::int64_t B = 3, T = 8, H = 6, D = 5;
  const auto at = [](std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) {
    return ((b * T + t) * H + h) * D + d;
  };
  const Tensor all = box_.make(DType::f32, {B, T, H, D}, positions());
  copy_heads({.y = all.slice(1, 4, 4).slice(2, 0, 2), .x = all.slice(1, 0, 4).slice(2, 3, 2)}, box_.stream(3));
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t t = 0; t < T; ++t)
      for (std::int64_t h = 0; h < H; ++h)
        for (std::int64_t d = 0; d < D; ++d) {
          const bool written = t >= 4 && h < 2;
          ASSERT_EQ(box_.read(all, at(b, t, h, d)), written ? at(b, t - 4, h + 3, d) : at(b, t, h, d));
        }
}

TEST_F(CopiedHeads, OntoThemselvesStayOrDouble) {
  const Tensor all = box_.make(DType::bf16, {2, 3, 4, 5}, constant(1.5)), some = all.slice(2, 1, 2);
  EXPECT_EQ(refusal(some, some), "it ran");
  EXPECT_EQ(box_.read(all, 5), 1.5);
  EXPECT_EQ(refusal(some, some, true), "it ran");
  for (std::int64_t i = 0; i < all.elements(); ++i)
    EXPECT_EQ(box_.read(all, i), i / 5 % 4 == 1 || i / 5 % 4 == 2 ? 3 : 1.5);
}

TEST_F(CopiedHeads, MayNotOverlapInPart) {
  const Tensor all = box_.make(DType::f32, {2, 4, 4, 6}, constant(1));
  const auto tokens = [&](std::int64_t begin) { return all.slice(1, begin, 2); };
  EXPECT_THAT(refusal(tokens(1), tokens(0)), HasSubstr("copy_heads: y overlaps x"));
  EXPECT_EQ(refusal(tokens(2), tokens(0)), "it ran");
  const auto heads = [&](std::int64_t begin) { return all.slice(2, begin, 2); };
  EXPECT_THAT(refusal(heads(1), heads(0)), HasSubstr("overlaps"));
  EXPECT_EQ(refusal(heads(2), heads(0)), "it ran");
  const auto columns = [&](std::int64_t begin) { return all.slice(3, begin, 3); };
  EXPECT_THAT(refusal(columns(2), columns(0)), HasSubstr("overlaps"));
  EXPECT_EQ(refusal(columns(3), columns(0)), "it ran");
  // In place in another type, a row would be written before it is read.
  EXPECT_THAT(refusal(all.narrowed(DType::bf16), all), HasSubstr("overlaps"));
  EXPECT_THAT(refusal(all, all.narrowed(DType::bf16)), HasSubstr("overlaps"));
  const Tensor half = all.narrowed(DType::bf16), other = all.narrowed(DType::f16);
  EXPECT_THAT(refusal(half, other), HasSubstr("overlaps"));
}

TEST_F(CopiedHeads, OfNothingIsNothing) {
  for (const Shape& shape : {Shape{0, 3, 2, 5}, Shape{2, 0, 3, 5}, Shape{2, 3, 0, 5}, Shape{2, 3, 2, 0}})
    for (const bool accumulate : {false, true}) {
      const Tensor y = box_.make(DType::f32, {2, 3, 3, 5}, constant(1)), x = box_.make(DType::bf16, {2, 3, 3, 5});
      Tensor to = y, from = x;
      for (int i = 0; i < 4; ++i) {
        to = to.slice(i, 0, shape[i]);
        from = from.slice(i, 0, shape[i]);
      }
      EXPECT_EQ(refusal(to, from, accumulate), "it ran");
      for (std::int64_t i = 0; i < y.elements(); ++i) ASSERT_EQ(box_.read(y, i), 1);
      MetaDevice meta;
      copy_heads({.y = Tensor(nullptr, DType::f32, Device::meta, shape),
                  .x = Tensor(nullptr, DType::bf16, Device::meta, shape),
                  .accumulate = accumulate},
                 meta.stream());
      EXPECT_EQ(meta.work().bytes_read + meta.work().bytes_written + meta.work().flops, 0);
    }
}

TEST_F(CopiedHeads, CountAnOperationWhereThereIsArithmetic) {
  const auto flops = [](DType to, DType from, bool accumulate) {
    const Shape shape{2, 3, 4, 5};
    MetaDevice meta;
    copy_heads({.y = Tensor(nullptr, to, Device::meta, shape),
                .x = Tensor(nullptr, from, Device::meta, shape),
                .accumulate = accumulate},
               meta.stream());
    return meta.work().flops;
  };
  EXPECT_EQ(flops(DType::bf16, DType::bf16, false), 0);
  EXPECT_EQ(flops(DType::f32, DType::bf16, false), 120);
  EXPECT_EQ(flops(DType::bf16, DType::bf16, true), 120);
}

}  // namespace
}  // namespace lockstep::tests
