// A vocabulary cut between ranks gives the losses and gradients of the whole.
#include "kernels/split_cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/devices.h"
#include "support/kernel_cases.h"
#include "support/split_loss_trial.h"
#include "support/tensor_box.h"

namespace lockstep::tests {
namespace {

struct Cut {
  std::int64_t vocabulary, part, parts;
};

class CutVocabulary : public ::testing::TestWithParam<Cut> {};

TEST_P(CutVocabulary, GivesWhatTheWholeGivesInEveryType) {
  const auto [vocabulary, part, parts] = GetParam();
  CpuDevice cpu;
  for (const DType type : kFloatTypes)
    EXPECT_EQ(try_split_loss({.vocabulary = vocabulary, .part = part, .parts = parts, .type = type, .to = type},
                             cpu.memory(), cpu.stream(2)),
              "");
  for (const DType to : {DType::bf16, DType::f16})
    EXPECT_EQ(try_split_loss({.vocabulary = vocabulary, .part = part, .parts = parts, .type = DType::f32, .to = to},
                             cpu.memory(), cpu.stream(3)),
              "");
}

INSTANTIATE_TEST_SUITE_P(Of, CutVocabulary,
                         ::testing::Values(Cut{507, 507, 1}, Cut{507, 127, 4}, Cut{507, 127, 5}, Cut{13, 1, 13},
                                           Cut{31, 16, 2}, Cut{1000, 336, 3}, Cut{5000, 720, 7}),
                         [](const auto& info) {
                           return fmt::format("{}_in_{}_of_{}", info.param.vocabulary, info.param.parts,
                                              info.param.part);
                         });

class SplitLoss : public ::testing::Test {
 protected:
  static constexpr std::int64_t N = 9, V = 507;
  struct Result {
    std::vector<double> losses, dlogits;
  };

  Tensor logits(DType type) { return box_.make(type, {N, V}, normal(3)); }
  Tensor targets() { return box_.make(DType::i32, {N}, tests::targets(V, 4, kIgnoredTarget)); }
  Tensor scale(DType type) { return box_.make(accumulator_of(type), {1}, constant(1.0 / 7)); }

  Result whole(DType type) {
    const Tensor losses = box_.make(accumulator_of(type), {N}), dlogits = box_.make(type, {N, V});
    cross_entropy(
        {.losses = losses, .dlogits = dlogits, .logits = logits(type), .targets = targets(), .scale = scale(type)},
        box_.stream());
    return {box_.read(losses), box_.read(dlogits)};
  }

  // In `parts` parts of this many columns: the losses of the last, and all gradients but those of padding.
  Result split(DType type, std::int64_t part, std::int64_t parts) {
    const DType wide = accumulator_of(type);
    const Tensor x = box_.make(type, {N, part * parts}), dx = box_.make(type, {N, part * parts}), all = logits(type),
                 statistics = box_.make(wide, {parts, N, kLossStatistics}), losses = box_.make(wide, {N});
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t v = 0; v < V; ++v) box_.write(x, n * part * parts + v, box_.read(all, n * V + v));
    const auto valid = [&](std::int64_t rank) { return std::clamp<std::int64_t>(V - rank * part, 0, part); };
    for (std::int64_t rank = 0; rank < parts; ++rank)
      split_cross_entropy_statistics({.statistics = statistics.slice(0, rank, 1).reshape({N, kLossStatistics}),
                                      .logits = x.slice(1, rank * part, part),
                                      .targets = targets(),
                                      .first = rank * part,
                                      .valid = valid(rank)},
                                     box_.stream(2));
    for (std::int64_t rank = 0; rank < parts; ++rank)
      split_cross_entropy({.losses = losses,
                           .dlogits = dx.slice(1, rank * part, part),
                           .logits = x.slice(1, rank * part, part),
                           .targets = targets(),
                           .statistics = statistics,
                           .scale = scale(type),
                           .first = rank * part,
                           .valid = valid(rank)},
                          box_.stream(2));
    Result result{box_.read(losses), {}};
    for (std::int64_t i = 0; i < N * part * parts; ++i)
      if (i % (part * parts) < V)
        result.dlogits.push_back(box_.read(dx, i));
      else
        EXPECT_EQ(box_.read(dx, i), 0) << "padding, row " << i / (part * parts);
    return result;
  }

  TensorBox box_;
};

// The last part has one column of padding; a fifth has nothing else.
TEST_F(SplitLoss, IsThatOfTheWholeTo1e12) {
  const Result one = whole(DType::f64);
  for (const std::int64_t parts : {4, 5}) {
    const Result cut = split(DType::f64, 127, parts);
    for (std::int64_t n = 0; n < N; ++n) EXPECT_NEAR(cut.losses[n], one.losses[n], 1e-12);
    for (std::int64_t i = 0; i < N * V; ++i) EXPECT_NEAR(cut.dlogits[i], one.dlogits[i], 1e-12);
  }
}

TEST_F(SplitLoss, OfOneRankIsTheLossItself) {
  for (const DType type : kFloatTypes) {
    const Result one = whole(type), same = split(type, V, 1);
    const double eps = unit_roundoff(accumulator_of(type));
    for (std::int64_t n = 0; n < N; ++n) EXPECT_NEAR(same.losses[n], one.losses[n], 8 * eps * std::abs(one.losses[n]));
    for (std::int64_t i = 0; i < N * V; ++i)
      EXPECT_NEAR(same.dlogits[i], one.dlogits[i], (8 * eps + 2 * unit_roundoff(type)) * std::abs(one.dlogits[i]));
  }
}

// As in cross_entropy: no word is possible, and no update is made of it. Beside a rank that has one, it is a row like
// any other.
TEST_F(SplitLoss, OfARowWithoutPossibleWordsIsNoNumber) {
  constexpr double kImpossible = -std::numeric_limits<double>::infinity();
  for (const DType type : {DType::f64, DType::f32})
    for (const bool possible : {false, true}) {
      const Tensor losses = box_.make(type, {1}), dlogits = box_.make(type, {1, 3});
      const double high = possible ? 1.5 : kImpossible, sum = possible ? 2 : 0, hit = possible ? 1 : 0;
      split_cross_entropy(
          {.losses = losses,
           .dlogits = dlogits,
           .logits = box_.make(type, {1, 3}, constant(kImpossible)),
           .targets = box_.make(DType::i32, {1}, constant(8)),
           .statistics = box_.make(type, {3, 1, 3}, {kImpossible, 0, 0, kImpossible, 0, 0, high, sum, hit}),
           .scale = box_.make(type, {1}, constant(1)),
           .first = 3,
           .valid = 3},
          box_.stream());
      if (possible)
        EXPECT_NEAR(box_.read(losses, 0), std::log(2) + 0.5, 1e-6);
      else
        EXPECT_TRUE(std::isnan(box_.read(losses, 0)));
      for (std::int64_t i = 0; i < 3; ++i)
        EXPECT_TRUE(possible ? box_.read(dlogits, i) == 0 : std::isnan(box_.read(dlogits, i))) << i;
    }
}

TEST_F(SplitLoss, AcceptsColumnsThatAreThereAndTargetsThatCanBe) {
  const Tensor x = logits(DType::f32), losses = box_.make(DType::f32, {N}), all = targets(),
               statistics = box_.make(DType::f32, {1, N, kLossStatistics}, constant(1));
  const auto call = [&](std::int64_t first, std::int64_t valid, const Tensor& dlogits = {}) {
    split_cross_entropy_statistics({.statistics = statistics.reshape({N, kLossStatistics}),
                                    .logits = x,
                                    .targets = all,
                                    .first = first,
                                    .valid = valid},
                                   box_.stream());
    split_cross_entropy({.losses = losses,
                         .dlogits = dlogits,
                         .logits = x,
                         .targets = all,
                         .statistics = statistics,
                         .scale = scale(DType::f32),
                         .first = first,
                         .valid = valid},
                        box_.stream());
  };
  EXPECT_NO_THROW(call(0, V));
  EXPECT_NO_THROW(call(7 * V, 0));
  EXPECT_THROW(call(0, V + 1), ProgramError);
  EXPECT_THROW(call(0, -1), ProgramError);
  EXPECT_THROW(call(-1, V), ProgramError);
  EXPECT_NO_THROW(call(0, V, x.narrowed(DType::bf16)));
  const Tensor dense(x.raw(), DType::bf16, Device::cpu, {N, V});  // rows do not begin where theirs do
  EXPECT_THROW(call(0, V, dense), ProgramError);
  all.data<std::int32_t>()[3] = -2;
  EXPECT_THROW(call(0, V), ProgramError);
}

}  // namespace
}  // namespace lockstep::tests
