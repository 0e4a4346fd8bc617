// A query's attention has the same bits alone, among few and in a whole sequence: a token that is generated has the
// attention that it would have in a forward over all tokens.
#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "support/kernel_cases.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

class AttentionSlice : public ::testing::TestWithParam<DType> {};

TEST_P(AttentionSlice, HasTheBitsOfTheWhole) {
  constexpr std::int64_t T = 150, H = 6, K = 2, D = 20;
  const DType type = GetParam(), sums = accumulator_of(type);
  TensorBox box;
  const Tensor q = box.make(type, {1, T, H, D}, normal(), 1), k = box.make(type, {1, T, K, D}, normal(), 2),
               v = box.make(type, {1, T, K, D}, normal(), 3), o = box.make(type, {1, T, H, D}),
               lse = box.make(sums, {1, H, T});
  attention_forward({.o = o, .lse = lse, .q = q, .k = k, .v = v, .scale = 0.3}, box.stream(2));
  for (const std::int64_t count : {1, 3, 8, 9, 16, 17, 70})
    for (const std::int64_t end : {T, std::int64_t{129}, std::int64_t{71}}) {
      const Tensor part = box.make(type, {1, count, H, D}), part_lse = box.make(sums, {1, H, count});
      attention_forward({.o = part,
                         .lse = part_lse,
                         .q = q.slice(1, end - count, count),
                         .k = k.slice(1, 0, end),
                         .v = v.slice(1, 0, end),
                         .scale = 0.3},
                        box.stream());
      for (std::int64_t t = 0; t < count; ++t) {
        const auto row = [](const Tensor& x, std::int64_t at) { return TensorBox::bytes(x.slice(1, at, 1)); };
        ASSERT_EQ(row(part, t), row(o, end - count + t)) << count << " queries before " << end << ", query " << t;
        for (std::int64_t h = 0; h < H; ++h)
          ASSERT_EQ(box.read(part_lse, h * count + t), box.read(lse, h * T + end - count + t)) << count << ", " << t;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(In, AttentionSlice, ::testing::ValuesIn(kFloatTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace lockstep::tests
