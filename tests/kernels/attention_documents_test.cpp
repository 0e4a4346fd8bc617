// Documents within a sample: what they hide is not read, and one document is plain attention to the bit. That they are
// computed as plain loops do is in the table of cases (support/cases/attention_cases.cpp).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "support/kernel_cases.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

class DocumentAttention : public ::testing::Test {
 protected:
  struct Operands {
    Tensor q, k, v, d_o, o, lse, dq, dk, dv;
  };
  Operands make(DType type, std::int64_t T) {
    const Shape q{1, T, kHeads, kWidth}, k{1, T, kKeyHeads, kWidth};
    return {.q = box_.make(type, q, normal()),
            .k = box_.make(type, k, normal()),
            .v = box_.make(type, k, normal()),
            .d_o = box_.make(type, q, normal()),
            .o = box_.make(type, q),
            .lse = box_.make(accumulator_of(type), {1, kHeads, T}),
            .dq = box_.make(type, q),
            .dk = box_.make(type, k),
            .dv = box_.make(type, k)};
  }
  void run(const Operands& x, const DocumentMask& documents) {
    attention_forward({.o = x.o, .lse = x.lse, .q = x.q, .k = x.k, .v = x.v, .scale = 0.5, .documents = documents},
                      box_.stream(2));
    attention_backward({.dq = x.dq,
                        .dk = x.dk,
                        .dv = x.dv,
                        .d_o = x.d_o,
                        .q = x.q,
                        .k = x.k,
                        .v = x.v,
                        .o = x.o,
                        .lse = x.lse,
                        .scale = 0.5,
                        .documents = documents},
                       box_.stream(2));
  }
  // Everything that was computed of tokens [from, end).
  std::vector<double> results(const Operands& x, std::int64_t from, std::int64_t end) {
    std::vector<double> all;
    for (std::int64_t h = 0; h < kHeads; ++h)
      for (std::int64_t t = from; t < end; ++t) all.push_back(box_.read(x.lse, h * x.q.dim(1) + t));
    for (const Tensor& t : {x.o, x.dq, x.dk, x.dv})
      for (std::int64_t i = from * t.dim(2) * kWidth; i < end * t.dim(2) * kWidth; ++i) all.push_back(box_.read(t, i));
    return all;
  }
  void poison(const Operands& x, std::int64_t from, std::int64_t end) {
    for (const Tensor& t : {x.q, x.k, x.v, x.d_o})
      for (std::int64_t i = from * t.dim(2) * kWidth; i < end * t.dim(2) * kWidth; ++i)
        box_.write(t, i, std::numeric_limits<double>::quiet_NaN());
  }
  DocumentMask mask(const std::vector<double>& starts) {
    const auto T = static_cast<std::int64_t>(starts.size());
    return {.starts = box_.make(DType::i32, {1, T}, starts)};
  }

  static constexpr std::int64_t kHeads = 2, kKeyHeads = 1, kWidth = 8;
  TensorBox box_;
};

TEST_F(DocumentAttention, OfOneDocumentHasTheBitsOfPlainAttention) {
  for (const DType type : kFloatTypes)
    for (const std::int64_t T : {1, 63, 130, 200}) {
      const Operands plain = make(type, T), one = make(type, T);
      for (const auto& [to, from] : {std::pair(one.q, plain.q), std::pair(one.k, plain.k), std::pair(one.v, plain.v),
                                     std::pair(one.d_o, plain.d_o)})
        std::memcpy(to.raw(), from.raw(), static_cast<std::size_t>(from.bytes()));
      run(plain, {});
      run(one, mask(std::vector<double>(static_cast<std::size_t>(T), 0)));
      EXPECT_EQ(results(one, 0, T), results(plain, 0, T)) << name_of(type) << ", " << T;
    }
}

// Documents of whole tiles beside others: what is read of them is what they give.
TEST_F(DocumentAttention, ReadsNoTileThatNoQuerySees) {
  constexpr std::int64_t kBorder = 128, T = 320;
  std::vector<double> starts;  // two documents before the border, two after it
  for (std::int64_t t = 0; t < T; ++t) starts.push_back(t < 50 ? 0 : t < kBorder ? 50 : t < 200 ? kBorder : 200);
  for (const DType type : kFloatTypes)
    for (const bool first : {true, false}) {
      const std::int64_t from = first ? 0 : kBorder, end = first ? kBorder : T;
      const Operands all = make(type, T);
      run(all, mask(starts));
      const std::vector<double> before = results(all, from, end);
      for (const double v : before) ASSERT_TRUE(std::isfinite(v));
      first ? poison(all, kBorder, T) : poison(all, 0, kBorder);
      run(all, mask(starts));
      EXPECT_EQ(results(all, from, end), before) << name_of(type) << (first ? ", first" : ", last");
    }
}

}  // namespace
}  // namespace lockstep::tests
