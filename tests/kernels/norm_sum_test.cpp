// The sum of squares is the same integers whatever the order and the cuts, and its total is right to the last bit.
#include "kernels/norm_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "support/kernel_cases.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

using Bins = std::vector<std::int64_t>;

class NormSum : public ::testing::Test {
 protected:
  Bins bins_of(const ConstTensor& x, int threads = 1) {
    const Tensor bins = box_.make(DType::i64, {kNormBins});
    norm_sum({.bins = bins, .x = x}, box_.stream(threads));
    const auto* data = bins.data<std::int64_t>();
    return Bins(data, data + kNormBins);
  }

  TensorBox box_;
};

Bins operator+(Bins a, const Bins& b) {
  for (int i = 0; i < kNormBins; ++i) a[i] += b[i];
  return a;
}

// Blocks of 256 in any order, and buffers cut at any of them, are the same blocks.
TEST_F(NormSum, IsTheSameIntegersForAnyOrderOfBlocksAndAnyCut) {
  constexpr std::int64_t blocks = 13, n = blocks * kNormBlock - 100;  // the last block is short
  for (const DType type : kFloatTypes) {
    const Recipe fill = type == DType::f16 ? magnitudes(-24, 15) : magnitudes(-60, 60);
    const Tensor x = box_.make(type, {n}, fill);
    const Bins whole = bins_of(x);
    for (const int threads : {2, 3, 5}) EXPECT_EQ(bins_of(x, threads), whole);
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      std::vector<std::int64_t> order(blocks);
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(),
                [&](auto a, auto b) { return uniform_number(seed, a) < uniform_number(seed, b); });
      const Tensor bins = box_.make(DType::i64, {kNormBins});
      Bins sum(kNormBins);
      bool first = true;
      for (const std::int64_t block : order) {
        const std::int64_t begin = block * kNormBlock, count = std::min<std::int64_t>(kNormBlock, n - begin);
        sum = sum + bins_of(x.slice(0, begin, count));
        norm_sum({.bins = bins, .x = x.slice(0, begin, count), .accumulate = !first}, box_.stream());
        first = false;
      }
      EXPECT_EQ(norm_total(sum), norm_total(whole)) << name_of(type);
      EXPECT_EQ(norm_total({bins.data<std::int64_t>(), kNormBins}), norm_total(whole)) << name_of(type);
      EXPECT_EQ(sum, whole) << name_of(type);
    }
    for (const std::int64_t cut : {1, 4, 12}) {
      const std::int64_t at = cut * kNormBlock;
      EXPECT_EQ(bins_of(x.slice(0, 0, at)) + bins_of(x.slice(0, at, n - at)), whole)
          << name_of(type) << " cut at " << at;
    }
  }
}

TEST_F(NormSum, TotalIsTheSumOfSquares) {
  for (const DType type : kFloatTypes) {
    const Recipe fill = type == DType::f16 ? magnitudes(-24, 15) : magnitudes(-60, 60);
    for (const std::int64_t n : {1, 255, 256, 257, 1000, 30011}) {
      const Tensor x = box_.make(type, {n}, fill, static_cast<std::uint64_t>(n));
      long double want = 0;
      for (const double v : box_.read(x)) want += static_cast<long double>(v) * v;
      EXPECT_NEAR(norm_total(bins_of(x)) / static_cast<double>(want), 1, 1e-15 * std::sqrt(256.0))
          << name_of(type) << " " << n;
    }
  }
}

// The bins hold what was added, without rounding: 10^5 small numbers beside a large one are all there.
TEST(NormAdd, LosesNothing) {
  Bins bins(kNormBins);
  norm_add(bins, 0x1p200);
  for (int i = 0; i < 100000; ++i) norm_add(bins, 0x1.8p-200);
  Bins small(kNormBins);
  for (int i = 0; i < 100000; ++i) norm_add(small, 0x1.8p-200);
  EXPECT_EQ(norm_total(small), 0x1.8p-200 * 100000);
  EXPECT_EQ(norm_total(bins), 0x1p200);
  bins[kNormBias / 32 + 200 / 32] -= std::int64_t{1} << (200 % 32 + kNormBias % 32);  // take the large one away again
  EXPECT_EQ(norm_total(bins), 0x1.8p-200 * 100000);
}

TEST(NormTotal, OfOneNumberIsThatNumber) {
  for (const double v : {0.0, 1.0, 3.0, 1e-3, 0x1.fffffffffffffp1023, 0x1p1023, 0x1p-1022, 0x1.8p-1060, 5e-324,
                         0x1.23456789abcdep-1040, 0x1.fffffffffffffp31, 0x1.fffffffffffffp-33}) {
    Bins bins(kNormBins);
    norm_add(bins, v);
    EXPECT_EQ(norm_total(bins), v);
  }
  for (std::int64_t i = 0; i < 2000; ++i) {  // every place a mantissa can have in the bins
    const double v = std::ldexp(1 + uniform_number(3, i), static_cast<int>(i) - 1000);
    Bins bins(kNormBins);
    norm_add(bins, v);
    EXPECT_EQ(norm_total(bins), v);
  }
}

// Rounded once, to nearest even: a tie that a far smaller number breaks is not a tie.
TEST(NormTotal, IsRoundedOnce) {
  const auto total = [](std::initializer_list<double> values) {
    Bins bins(kNormBins);
    for (const double v : values) norm_add(bins, v);
    return norm_total(bins);
  };
  for (int e = -900; e <= 900; e += 7) {
    const double one = std::ldexp(1, e), ulp = std::ldexp(1, e - 52), half = ulp / 2, tiny = std::ldexp(1, e - 110);
    EXPECT_EQ(total({one, half}), one) << e;                  // a tie goes to even
    EXPECT_EQ(total({one + ulp, half}), one + 2 * ulp) << e;  // and so does this one
    EXPECT_EQ(total({one, half, tiny}), one + ulp) << e;      // no longer a tie
    EXPECT_EQ(total({one, half / 2, half / 4}), one) << e;    // less than half
    EXPECT_EQ(total({one, half / 2, half / 2, tiny}), one + ulp) << e;
  }
}

TEST(NormTotal, OfManyEqualNumbersCarries) {
  Bins bins(kNormBins);
  constexpr int count = 3000000;
  for (int i = 0; i < count; ++i) norm_add(bins, 0x1.fffffffffffffp10);
  EXPECT_DOUBLE_EQ(norm_total(bins), count * 0x1.fffffffffffffp10);
}

TEST_F(NormSum, OfZerosAndSubnormals) {
  EXPECT_EQ(norm_total(bins_of(box_.make(DType::f32, {1000}, constant(0)))), 0);
  const double small = 0x1p-149;  // float's smallest: its square is an ordinary double
  EXPECT_EQ(norm_total(bins_of(box_.make(DType::f32, {3}, constant(small)))), 3 * small * small);
  EXPECT_EQ(norm_total(bins_of(box_.make(DType::f16, {3}, constant(0x1p-24)))), 3 * 0x1p-48);
  EXPECT_EQ(norm_total(bins_of(box_.make(DType::f64, {3}, constant(1e-300)))), 0);  // squares to nothing, as it must
}

TEST_F(NormSum, OfSomethingNotFiniteIsNotANumber) {
  for (const DType type : kFloatTypes)
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()})
      for (const std::int64_t at : {0, 300, 999}) {
        Tensor x = box_.make(type, {1000}, constant(1));
        box_.write(x, at, bad);
        const Bins bins = bins_of(x, 2);
        EXPECT_GT(bins[kNormDigits], 0) << name_of(type);
        EXPECT_FALSE(std::isfinite(norm_total(bins))) << name_of(type);
      }
  const Tensor overflowing = box_.make(DType::f64, {3}, constant(1e200));  // the square is not finite
  EXPECT_FALSE(std::isfinite(norm_total(bins_of(overflowing))));
}

// A sum of finite squares that is too large for a double is no number either.
TEST(NormTotal, TooLargeForADoubleIsNotFinite) {
  Bins bins(kNormBins);
  for (int i = 0; i < 4; ++i) norm_add(bins, 0x1p1023);
  EXPECT_FALSE(std::isfinite(norm_total(bins)));
  Bins just(kNormBins);
  norm_add(just, 0x1.fffffffffffffp1023);
  norm_add(just, 0x1p900);
  EXPECT_EQ(norm_total(just), 0x1.fffffffffffffp1023);
}

TEST_F(NormSum, WithoutAccumulateStartsAnew) {
  const Tensor bins = box_.make(DType::i64, {kNormBins}), x = box_.make(DType::f32, {10}, constant(2));
  for (const bool accumulate : {false, false, true})
    norm_sum({.bins = bins, .x = x, .accumulate = accumulate}, box_.stream());
  EXPECT_EQ(norm_total({bins.data<std::int64_t>(), kNormBins}), 80);
}

}  // namespace
}  // namespace lockstep::tests
