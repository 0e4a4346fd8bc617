// A table cut into parts is the table: what each part gives adds up to the whole's rows, and its gradients are the
// whole's, to the bit.
#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include "support/kernel_cases.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

class PartsOfATable : public ::testing::TestWithParam<DType> {
 protected:
  // 31 rows in parts of 8: the last has one row that no token names.
  static constexpr std::int64_t B = 3, T = 17, C = 21, V = 31, P = 8;
  TensorBox box_;
  Tensor tokens_ = box_.make(DType::i32, {B, T}, indices(V));
};

TEST_P(PartsOfATable, LookUpWhatTheyHoldAndZerosElsewhere) {
  const DType type = GetParam();
  const Tensor table = box_.make(type, {V + 1, C}, normal()), whole = box_.make(type, {B, T, C});
  embedding_forward({.y = whole, .table = table, .tokens = tokens_}, box_.stream());
  std::vector<double> sum(static_cast<std::size_t>(whole.elements()));
  for (std::int64_t first = 0; first < V; first += P) {
    const Tensor y = box_.make(type, {B, T, C});
    embedding_forward({.y = y, .table = table.slice(0, first, P), .tokens = tokens_, .part = true, .first = first},
                      box_.stream(2));
    for (std::int64_t i = 0; i < y.elements(); ++i) {
      const double token = box_.read(tokens_, i / C);
      if (token < static_cast<double>(first) || token >= static_cast<double>(first + P)) {
        ASSERT_EQ(box_.read(y, i), 0);
      }
      sum[static_cast<std::size_t>(i)] += box_.read(y, i);
    }
  }
  EXPECT_EQ(sum, box_.read(whole));
}

TEST_P(PartsOfATable, HaveTheGradientsOfTheWhole) {
  const DType type = GetParam();
  const Tensor dy = box_.make(type, {B, T, C}, magnitudes(-6, 6));
  for (const DType to : {type, accumulator_of(type)})
    for (const bool accumulate : {false, true}) {
      const Tensor whole = box_.make(to, {V + 1, C}, normal(), 5), cut = box_.make(to, {V + 1, C}, normal(), 5);
      embedding_backward({.dtable = whole, .dy = dy, .indices = tokens_, .accumulate = accumulate}, box_.stream());
      for (std::int64_t first = 0; first < V; first += P)
        embedding_backward({.dtable = cut.slice(0, first, P),
                            .dy = dy,
                            .indices = tokens_,
                            .accumulate = accumulate,
                            .part = true,
                            .first = first},
                           box_.stream(2));
      EXPECT_TRUE(box_.bytes(cut) == box_.bytes(whole)) << name_of(to) << (accumulate ? ", accumulating" : "");
    }
}

INSTANTIATE_TEST_SUITE_P(In, PartsOfATable, ::testing::ValuesIn(kFloatTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace lockstep::tests
