// Attention over parts of the keys, merged, is attention over all of them. (Parity, threads, NaN, refusals and what
// meta reads and writes: the table of cases.)
#include "kernels/attention_merge.h"

#include <gmock/gmock.h>

#include <cmath>

#include "kernels/attention.h"
#include "support/devices.h"
#include "support/kernel_cases.h"
#include "support/reference_ops.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

class AttentionInParts : public ::testing::Test {
 protected:
  static constexpr std::int64_t B = 2, T = 37, H = 6, K = 2, D = 20;
  static constexpr double kScale = 0.3;
  struct Result {
    Tensor o, lse;
  };

  Result nothing(DType type) { return {box_.make(type, {B, T, H, D}), box_.make(accumulator_of(type), {B, H, T})}; }

  // The queries over these keys, the last `T` of all `S` masked as causal attention masks them.
  Result over(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
    const Result r = nothing(q.dtype());
    attention_forward({.o = r.o, .lse = r.lse, .q = q, .k = k, .v = v, .scale = kScale, .causal = causal},
                      box_.stream());
    return r;
  }

  // Keys cut at these places, the parts merged one by one into `sum`.
  void over_parts(const Result& sum, const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                  const std::vector<std::int64_t>& cuts) {
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const std::int64_t begin = cuts[i], count = cuts[i + 1] - cuts[i];
      // Only the last part holds keys that some query does not see.
      const Result part = over(q, k.slice(1, begin, count), v.slice(1, begin, count), causal && i + 2 == cuts.size());
      attention_merge({.o = sum.o, .lse = sum.lse, .part = part.o, .part_lse = part.lse, .first = i == 0},
                      box_.stream(2));
    }
  }

  HostTensor host(const Tensor& t, const char* name) {
    HostTensor h(name, t.shape(), t.dtype());
    h.value = box_.read(t);
    return h;
  }

  TensorBox box_;
};

TEST_F(AttentionInParts, IsThatOfTheWholeTo1e13) {
  constexpr std::int64_t S = 101;
  const Tensor q = box_.make(DType::f64, {B, T, H, D}, normal(), 1),
               k = box_.make(DType::f64, {B, S, K, D}, normal(), 2),
               v = box_.make(DType::f64, {B, S, K, D}, normal(), 3);
  for (const bool causal : {false, true})
    for (const std::vector<std::int64_t>& cuts : {std::vector<std::int64_t>{0, S}, {0, 51, S}, {0, 1, 30, 64, S}}) {
      const Result whole = over(q, k, v, causal), sum = nothing(DType::f64);
      over_parts(sum, q, k, v, causal, cuts);
      for (std::int64_t i = 0; i < whole.o.elements(); ++i)
        ASSERT_NEAR(box_.read(sum.o, i), box_.read(whole.o, i), 1e-13) << cuts.size() - 1 << " parts, element " << i;
      for (std::int64_t i = 0; i < whole.lse.elements(); ++i)
        ASSERT_NEAR(box_.read(sum.lse, i), box_.read(whole.lse, i), 1e-13) << cuts.size() - 1 << " parts, query " << i;
    }
}

// Each part's output is rounded to 16 bits once, and in fp32 sums nothing more is lost however many there are: within
// one unit of the size of what is added up. In 16 bits each merge rounds again.
TEST_F(AttentionInParts, OfSixteenBitsLosesOneRoundingInWideSums) {
  constexpr std::int64_t S = 96;
  std::vector<std::int64_t> cuts;
  for (std::int64_t at = 0; at <= S; at += 8) cuts.push_back(at);
  for (const DType type : {DType::bf16, DType::f16}) {
    const Tensor q = box_.make(type, {B, T, H, D}, normal(), 1), k = box_.make(type, {B, S, K, D}, normal(), 2),
                 v = box_.make(type, {B, S, K, D}, normal(), 3);
    const Result wide{box_.make(DType::f32, {B, T, H, D}), box_.make(DType::f32, {B, H, T})}, narrow = nothing(type);
    over_parts(wide, q, k, v, false, cuts);
    over_parts(narrow, q, k, v, false, cuts);
    HostTensor o("o", {B, T, H, D}, DType::f32), lse("lse", {B, H, T}, DType::f32);
    reference::attention_forward(o, lse, host(q, "q"), host(k, "k"), host(v, "v"), {.scale = kScale, .causal = false});
    double worst_wide = 0, worst_narrow = 0;
    for (std::int64_t i = 0; i < o.elements(); ++i) {
      const double largest_value = 3.5;  // of what is weighed; the weights of all parts are 1
      worst_wide = std::max(worst_wide, std::abs(box_.read(wide.o, i) - o[i]) / largest_value);
      worst_narrow = std::max(worst_narrow, std::abs(box_.read(narrow.o, i) - o[i]) / largest_value);
    }
    EXPECT_LE(worst_wide, unit_roundoff(type)) << name_of(type);
    EXPECT_GT(worst_narrow, worst_wide) << name_of(type);
    EXPECT_LE(worst_narrow, 12 * unit_roundoff(type)) << name_of(type);
    EXPECT_EQ(difference(host(wide.lse, "lse"), lse, DType::f32), "") << name_of(type);
  }
}

// Often enough, and with enough queries, that the other threads come in time to take some.
TEST_F(AttentionInParts, HasTheSameBitsForAnyNumberOfThreads) {
  const Shape heads{2, 1500, 4, 63}, rows{2, 4, 1500};
  const Tensor part = box_.make(DType::bf16, heads, normal(), 1), part_lse = box_.make(DType::f32, rows, normal(), 2);
  const auto merged = [&](int threads) {
    const Tensor o = box_.make(DType::f32, heads, constant(0.7)), lse = box_.make(DType::f32, rows, constant(0.2));
    attention_merge({.o = o, .lse = lse, .part = part, .part_lse = part_lse}, box_.stream(threads));
    return std::pair(box_.bytes(o), box_.bytes(lse));
  };
  const auto one = merged(1);
  for (int round = 0; round < 10; ++round) ASSERT_TRUE(merged(3) == one) << "round " << round;
}

class MergedRow : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr double kNothing = -INFINITY;
  struct Row {
    double o, lse;
  };
  static constexpr std::int64_t D = 19;

  // A query of one head whose D elements are all the same.
  Row merged(Row old, Row part, bool first = false) {
    const DType wide = accumulator_of(GetParam());
    const Tensor o = box_.make(wide, {1, 1, 1, D}, constant(old.o)),
                 lse = box_.make(wide, {1, 1, 1}, constant(old.lse));
    attention_merge({.o = o,
                     .lse = lse,
                     .part = box_.make(GetParam(), {1, 1, 1, D}, constant(part.o)),
                     .part_lse = box_.make(wide, {1, 1, 1}, constant(part.lse)),
                     .first = first},
                    box_.stream());
    for (std::int64_t i = 1; i < D; ++i) {
      const double a = box_.read(o, 0), b = box_.read(o, i);
      EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << "element " << i << " is " << b << ", not " << a;
    }
    return {box_.read(o, 0), box_.read(lse, 0)};
  }
  void expect(Row got, Row want) {
    EXPECT_EQ(got.o, want.o);
    EXPECT_EQ(got.lse, want.lse);
  }
  TensorBox box_;
};

TEST_P(MergedRow, OfASideThatSawNoKeysIsTheOther) {
  for (const double garbage : {7.0, double(NAN), double(INFINITY)}) {
    expect(merged({0.25, 3.5}, {garbage, kNothing}), {0.25, 3.5});
    expect(merged({garbage, kNothing}, {0.25, 3.5}), {0.25, 3.5});
    expect(merged({garbage, kNothing}, {garbage, kNothing}), {0, kNothing});
  }
}

TEST_P(MergedRow, IsThePartWhereThereWasNothing) {
  expect(merged({NAN, NAN}, {-0.75, 12.5}, true), {-0.75, 12.5});
  expect(merged({5, 100}, {-0.75, -12.5}, true), {-0.75, -12.5});
  expect(merged({5, 100}, {7, kNothing}, true), {0, kNothing});
  EXPECT_TRUE(std::signbit(merged({5, 100}, {-0.0, 1}, true).o));
}

// Exponentials of what is left of the larger one: none overflows, and of what underflows nothing is left.
TEST_P(MergedRow, OfSidesFarApartIsTheHeavier) {
  for (const double base : {0.0, 5000.0, -5000.0}) {
    expect(merged({0.25, base + 1000}, {7, base}), {0.25, base + 1000});
    expect(merged({7, base}, {0.25, base + 1000}), {0.25, base + 1000});
  }
}

TEST_P(MergedRow, OfSidesOfOneWeightIsTheirMean) {
  const Row got = merged({0.25, 1000}, {0.75, 1000});
  EXPECT_EQ(got.o, 0.5);
  EXPECT_NEAR(got.lse, 1000 + std::log(2.0), 1e-4);
}

// Weights that sum to 1: no sum is larger than its terms.
TEST_P(MergedRow, OfTheLargestNumbersDoesNotOverflow) {
  const double most = GetParam() == DType::f64 ? 0x1p1023 : GetParam() == DType::f16 ? 32768 : 0x1p127;
  EXPECT_EQ(merged({most, 2}, {most, 2}).o, most);
}

TEST_P(MergedRow, PassesOnWhatIsNoNumber) {
  for (const auto& [old, part] :
       {std::pair{Row{NAN, 1}, Row{2, 1}}, {Row{1, 1}, Row{NAN, 1}}, {Row{NAN, 1}, Row{2, kNothing}}}) {
    EXPECT_TRUE(std::isnan(merged(old, part).o));
    EXPECT_FALSE(std::isnan(merged(old, part).lse));
  }
  for (const auto& [old, part] : {std::pair{Row{1, NAN}, Row{2, 1}},
                                  {Row{1, 1}, Row{2, NAN}},
                                  {Row{1, NAN}, Row{2, kNothing}},
                                  {Row{1, kNothing}, Row{2, NAN}},
                                  {Row{1, INFINITY}, Row{2, 1}},
                                  {Row{1, 1}, Row{2, INFINITY}}}) {
    EXPECT_TRUE(std::isnan(merged(old, part).o));
    EXPECT_TRUE(std::isnan(merged(old, part).lse));
  }
}

INSTANTIATE_TEST_SUITE_P(In, MergedRow, ::testing::ValuesIn(kFloatTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

class MergeContract : public ::testing::Test {
 protected:
  static constexpr std::int64_t B = 2, T = 3, H = 4, D = 5;
  std::string refusal(const AttentionMergeArgs& args) {
    try {
      attention_merge(args, box_.stream());
    } catch (const ProgramError& error) {
      return error.what();
    }
    return "it ran";
  }
  Tensor heads(DType type) { return box_.make(type, {B, T, H, D}, constant(1)); }
  Tensor statistics(DType type) { return box_.make(type, {B, H, T}, constant(1)); }
  TensorBox box_;
};

TEST_F(MergeContract, SumsAreOfThePartsTypeOrItsAccumulator) {
  for (const DType o : kFloatTypes)
    for (const DType part : kFloatTypes)
      for (const DType lse : kFloatTypes) {
        const std::string message =
            refusal({.o = heads(o), .lse = statistics(lse), .part = heads(part), .part_lse = statistics(lse)});
        const bool fits = (o == part || o == accumulator_of(part)) && lse == accumulator_of(part);
        EXPECT_EQ(message == "it ran", fits) << name_of(o) << " " << name_of(part) << " " << name_of(lse) << message;
      }
}

// (B, T, H) instead of (B, H, T), or with gaps.
TEST_F(MergeContract, StatisticsAreAsAttentionGivesThem) {
  const Tensor o = heads(DType::f32), part = heads(DType::f32), good = statistics(DType::f32);
  const Tensor turned = box_.make(DType::f32, {B, T, H}), wide = box_.make(DType::f32, {B, H, 2 * T}, constant(1));
  EXPECT_EQ(refusal({.o = o, .lse = good, .part = part, .part_lse = statistics(DType::f32)}), "it ran");
  EXPECT_THAT(refusal({.o = o, .lse = turned, .part = part, .part_lse = good}), HasSubstr("attention_merge: lse"));
  EXPECT_THAT(refusal({.o = o, .lse = good, .part = part, .part_lse = turned}), HasSubstr("part_lse"));
  EXPECT_THAT(refusal({.o = o, .lse = wide.slice(2, 0, T), .part = part, .part_lse = good}), HasSubstr("contiguous"));
  EXPECT_THAT(refusal({.o = o, .lse = good, .part = part, .part_lse = wide.slice(2, 0, T)}), HasSubstr("contiguous"));
}

TEST_F(MergeContract, WhatIsWrittenOverlapsNoPart) {
  const Tensor o = heads(DType::f32), part = heads(DType::f32), lse = statistics(DType::f32),
               part_lse = statistics(DType::f32);
  EXPECT_THAT(refusal({.o = o, .lse = lse, .part = o, .part_lse = part_lse}), HasSubstr("o overlaps part"));
  EXPECT_THAT(refusal({.o = o, .lse = lse, .part = part, .part_lse = lse}), HasSubstr("lse overlaps part_lse"));
  const Tensor both = box_.make(DType::f32, {B, T, 2 * H, D}, constant(1));
  EXPECT_EQ(refusal({.o = both.slice(2, 0, H), .lse = lse, .part = both.slice(2, H, H), .part_lse = part_lse}),
            "it ran");
  EXPECT_THAT(refusal({.o = both.slice(2, 0, H), .lse = lse, .part = both.slice(2, 1, H), .part_lse = part_lse}),
              HasSubstr("o overlaps part"));
}

TEST_F(MergeContract, OfNothingIsNothing) {
  for (const Shape& s : {Shape{0, T, H, D}, Shape{B, 0, H, D}, Shape{B, T, 0, D}})
    EXPECT_EQ(refusal({.o = box_.make(DType::f32, s),
                       .lse = box_.make(DType::f32, {s[0], s[2], s[1]}),
                       .part = box_.make(DType::bf16, s),
                       .part_lse = box_.make(DType::f32, {s[0], s[2], s[1]})}),
              "it ran");
}

TEST_F(MergeContract, CountsThreeOperationsAnElementAndNoneOfTheFirst) {
  for (const bool first : {false, true}) {
    MetaDevice meta;
    const auto like = [](DType type, const Shape& shape) { return Tensor(nullptr, type, Device::meta, shape); };
    attention_merge({.o = like(DType::f32, {B, T, H, D}),
                     .lse = like(DType::f32, {B, H, T}),
                     .part = like(DType::bf16, {B, T, H, D}),
                     .part_lse = like(DType::f32, {B, H, T}),
                     .first = first},
                    meta.stream());
    EXPECT_EQ(meta.work().flops, first ? 0 : 3 * B * T * H * D);
    EXPECT_EQ(meta.work().matmul_flops, 0);
    EXPECT_EQ(meta.work().bytes_written, 4 * B * T * H * (D + 1));
    EXPECT_EQ(meta.work().bytes_read, B * T * H * (2 * D + 4 + (first ? 0 : 4 * (D + 1))));
  }
}

}  // namespace
}  // namespace lockstep::tests
