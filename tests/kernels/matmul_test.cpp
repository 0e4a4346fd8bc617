// An element of a product is its row times its column, to the bit, whatever else the matrices hold: a slice of a
// product is the product of slices, so tensor parallelism and micro-batches cannot change it by their cuts.
#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include "support/kernel_cases.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

class MatmulSlice : public ::testing::TestWithParam<DType> {
 protected:
  TensorBox box_;
};

TEST_P(MatmulSlice, HasTheBitsOfTheWhole) {
  constexpr std::int64_t M = 130, N = 150;
  const DType type = GetParam();
  for (const std::int64_t K : {1, 31, 300, 1100})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        const Tensor a = box_.make(type, ta ? Shape{K, M} : Shape{M, K}, normal(), 1);
        const Tensor b = box_.make(type, tb ? Shape{N, K} : Shape{K, N}, normal(), 2);
        const Tensor bias = box_.make(type, {N}, normal(), 3), whole = box_.make(type, {M, N});
        matmul({.c = whole, .a = a, .b = b, .transpose_a = ta, .transpose_b = tb, .bias = bias}, box_.stream(2));
        for (const auto& [row, rows, column, columns] : {std::array<std::int64_t, 4>{0, 1, 0, N},
                                                         {129, 1, 149, 1},
                                                         {13, 50, 7, 33},
                                                         {64, 66, 0, N},
                                                         {1, 128, 75, 75}}) {
          const Tensor part = box_.make(type, {rows, columns});
          matmul({.c = part,
                  .a = a.slice(ta ? 1 : 0, row, rows),
                  .b = b.slice(tb ? 0 : 1, column, columns),
                  .transpose_a = ta,
                  .transpose_b = tb,
                  .bias = bias.slice(0, column, columns)},
                 box_.stream());
          for (std::int64_t i = 0; i < rows * columns; ++i)
            ASSERT_EQ(box_.read(part, i), box_.read(whole, (row + i / columns) * N + column + i % columns))
                << "K " << K << (ta ? " a transposed" : "") << (tb ? " b transposed" : "") << ", slice at " << row
                << ", " << column << ", element " << i;
        }
      }
}

INSTANTIATE_TEST_SUITE_P(In, MatmulSlice, ::testing::ValuesIn(kFloatTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace lockstep::tests
