// Products of few rows read the right operand in place and give the bits of the packed product, which the same rows
// have in a larger batch. So a token that is generated has the logits of a whole forward, and no cut of a batch shows.
#include "kernels/cpu/few_rows.h"

#include <gtest/gtest.h>

#include <array>
#include <span>

#include "kernels/matmul.h"
#include "support/kernel_cases.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kMany = 40;  // rows that are packed

struct Extra {
  const char* name;
  bool bias = false, accumulate = false, addend = false, wide = false, gaps = false;
};

class FewRows : public ::testing::TestWithParam<DType> {
 protected:
  // With columns to its right that are another's.
  Tensor make(DType type, std::int64_t rows, std::int64_t columns, bool gaps, std::uint64_t seed) {
    const Recipe number = magnitudes(-6, 6);  // of one size they would have the same sums in many orders
    const Recipe fill = [number](std::uint64_t s, std::int64_t i) {
      return i % 17 == 5 ? (i % 2 == 0 ? 0.0 : -0.0) : number(s, i);
    };
    return box_.make(type, {rows, columns + (gaps ? 3 : 0)}, fill, seed).slice(1, 0, columns);
  }

  // Those of the operands' first rows.
  static MatmulArgs first_rows(const MatmulArgs& a, std::int64_t rows, const Tensor& c) {
    MatmulArgs few = a;
    few.c = c;
    few.a = a.a.slice(0, 0, rows);
    if (a.addend) few.addend = a.addend.slice(0, 0, rows);
    return few;
  }

  void expect_the_bits_of_many(std::int64_t n, std::int64_t k, bool transpose, const Extra& extra,
                               std::span<const std::int64_t> counts) {
    const DType type = GetParam(), result = extra.wide ? accumulator_of(type) : type;
    MatmulArgs many{.c = make(result, kMany, n, extra.gaps, 1),
                    .a = make(type, kMany, k, extra.gaps, 2),
                    .b = transpose ? make(type, n, k, extra.gaps, 3) : make(type, k, n, extra.gaps, 3),
                    .transpose_b = transpose,
                    .accumulate = extra.accumulate};
    if (extra.bias) many.bias = make(type, 1, n, false, 4).reshape({n});
    if (extra.addend) many.addend = make(result, kMany, n, extra.gaps, 5);
    ASSERT_FALSE(cpu::is_of_few_rows(many));
    matmul(many, box_.stream());
    for (const std::int64_t m : counts)
      for (const int threads : {1, 3}) {
        const MatmulArgs few = first_rows(many, m, make(result, kMany, n, extra.gaps, 1).slice(0, 0, m));
        ASSERT_TRUE(cpu::is_of_few_rows(few)) << m << " x " << n << " x " << k;
        matmul(few, box_.stream(threads));
        for (std::int64_t i = 0; i < m; ++i) {
          const auto row = [&](const Tensor& c) { return TensorBox::bytes(c.slice(0, i, 1)); };
          ASSERT_EQ(row(few.c), row(many.c)) << name_of(type) << ", row " << i << " of " << m << " x " << n << " x "
                                             << k << (transpose ? " transposed " : " ") << extra.name;
        }
      }
  }
  TensorBox box_;
};

constexpr std::array kExtras{Extra{"plain"},
                             Extra{.name = "with gaps", .gaps = true},
                             Extra{.name = "with a bias", .bias = true},
                             Extra{.name = "added to what there is", .accumulate = true, .gaps = true},
                             Extra{.name = "with bias and addend", .bias = true, .addend = true},
                             Extra{.name = "in sums' type", .accumulate = true, .wide = true},
                             Extra{.name = "in sums' type with a bias", .bias = true, .wide = true, .gaps = true}};

TEST_P(FewRows, HaveTheBitsThatTheyHaveAmongMany) {
  constexpr std::array<std::int64_t, 6> kCounts{1, 2, 3, 4, 5, 8};
  for (const bool transpose : {true, false}) {
    for (const Extra& extra : kExtras) {
      // Around the widths of vectors and the depth of a block.
      for (const std::int64_t k : {1, 7, 33, 256, 300}) expect_the_bits_of_many(45, k, transpose, extra, kCounts);
      expect_the_bits_of_many(16, 64, transpose, extra, kCounts);
      expect_the_bits_of_many(1100, 40, transpose, extra, kCounts);  // beyond a strip
    }
    expect_the_bits_of_many(19, 2600, transpose, kExtras[1], kCounts);  // and beyond a piece
  }
}

TEST_P(FewRows, OfALargeMatrixHaveThemInTwoRounds) {
  constexpr std::array<std::int64_t, 3> kCounts{9, 15, 16};
  const std::int64_t n = (std::int64_t{2} << 20) / (500 * size_of(GetParam())) + 1;
  for (const bool transpose : {true, false}) expect_the_bits_of_many(n, 500, transpose, kExtras[2], kCounts);
}

INSTANTIATE_TEST_SUITE_P(In, FewRows, ::testing::ValuesIn(kFloatTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace lockstep::tests
