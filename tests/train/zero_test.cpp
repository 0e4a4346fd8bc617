// ZeRO changes where state lives, never what is learned.
#include <gtest/gtest.h>

#include "support/learning_ranks.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

const NamedSpec& named(const std::string& name) {
  static const std::vector<NamedSpec> all = tiny_specs();
  return *std::ranges::find(all, name, &NamedSpec::name);
}

class Zero : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Zero, LearnsExactlyWhatDdpLearns) {
  const auto [stage, ranks] = GetParam();
  const NamedSpec models[] = {tiny_specs().front(), tiny_specs()[1], tiny_specs().back()};
  for (const int turn : {0, 1}) {  // two of the three, and each number of ranks with all
    const NamedSpec& model = models[(stage + ranks + turn) % 3];
    for (const GradSync sync : {GradSync::step, GradSync::micro}) {
      const LayoutSpec ddp{.dp = ranks, .micro = 3, .grad_sync = sync, .uneven = Switch::on};
      LayoutSpec zero = ddp;
      zero.zero = stage;
      const Learned plain = learn(model.spec, ddp, Precision::fp32);
      EXPECT_GT(plain.norms[0], 0.1) << "clipping is to be active";
      expect_equal(learn(model.spec, zero, Precision::fp32), plain, model.name + ", " + to_text(zero));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, Zero, ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Range(1, 9)),
                         [](const auto& info) {
                           return "stage" + std::to_string(std::get<0>(info.param)) + "ranks" +
                                  std::to_string(std::get<1>(info.param));
                         });

class ZeroOf : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(ZeroOf, LearnsWhatOneRankLearns) {
  for (const auto& [precision, tolerance] : {std::pair{Precision::fp64, 1e-11}, std::pair{Precision::fp32, 1e-5}}) {
    const Learned one = learn(GetParam().spec, {}, precision);
    for (const LayoutSpec& layout : {LayoutSpec{.dp = 2, .micro = 3, .zero = 1},
                                     {.dp = 3, .micro = 2, .zero = 2},
                                     {.dp = 8, .micro = 1, .zero = 2},
                                     {.dp = 5, .micro = 2, .zero = 3, .uneven = Switch::on},
                                     {.dp = 4, .micro = 3, .zero = 3, .reshard = Reshard::never, .shard = 2},
                                     {.dp = 6, .micro = 2, .zero = 1, .grad_sync = GradSync::micro, .shard = 3}})
      expect_close(learn(GetParam().spec, layout, precision), one, tolerance, to_text(layout));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ZeroOf, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

TEST(ZeroBits, OnceAStepAndAfterEveryMicroBatchAgree) {
  for (const NamedSpec& model : tiny_specs()) {
    const LayoutSpec micro{.dp = 3, .micro = 4, .zero = 2},
        step{.dp = 3, .micro = 4, .zero = 2, .grad_sync = GradSync::step};
    expect_close(learn(model.spec, micro, Precision::fp32), learn(model.spec, step, Precision::fp32),
                 {.losses = 1e-6, .norms = 1e-6, .gradients = 1e-6, .weights = 1e-5, .later = 1e-5}, model.name);
  }
}

// What keeps the order of sums keeps every bit.
TEST(ZeroBits, DoNotDependOnOverlapReshardingRoomOrGroups) {
  for (const NamedSpec& model : {tiny_specs().front(), tiny_specs()[1]})
    for (const GradSync sync : {GradSync::step, GradSync::micro}) {
      const LayoutSpec ddp{.dp = 6, .micro = 2, .grad_sync = sync};
      const Learned plain = learn(model.spec, ddp, Precision::fp32);
      for (const int stage : {1, 2, 3})
        for (const int shard : {0, 1, 2}) {
          LayoutSpec layout = ddp;
          layout.zero = stage;
          layout.shard = shard;
          expect_equal(learn(model.spec, layout, Precision::fp32), plain, to_text(layout));
          layout.overlap = Switch::off;
          expect_equal(learn(model.spec, layout, Precision::fp32), plain, to_text(layout));
          layout.overlap = Switch::on;
          if (stage < 3) continue;
          layout.reshard = Reshard::never;
          expect_equal(learn(model.spec, layout, Precision::fp32), plain, to_text(layout));
          layout.reshard = Reshard::forward;
          Replica::Options some = learning_options(model.spec, layout, Precision::fp32);
          some.how.memory.gathered = 1;
          expect_equal(learn(some), plain, to_text(layout) + " with room");
        }
    }
}

// Canonical sums over a group that is no power of two first are another order: equal to rounding, and not the claim.
TEST(ZeroBits, OfGroupsThatAreNoPowerOfTwoAreAnotherOrder) {
  const LayoutSpec all{.dp = 6, .micro = 2, .zero = 2}, groups{.dp = 6, .micro = 2, .zero = 2, .shard = 3};
  const ModelSpec spec = tiny_specs().front().spec;
  const Learned one = learn(spec, all, Precision::fp32), other = learn(spec, groups, Precision::fp32);
  expect_close(other, one, 1e-5, "groups of three");
  EXPECT_NE(one.weights(), other.weights());
}

TEST(ZeroBits, InSixteenBitsTooWithStateOfAnyType) {
  PrecisionSpec narrow = Precision::bf16;
  narrow.gradients = narrow.moments = StateType::bf16;
  PrecisionSpec narrowest = narrow;
  narrowest.master = StateType::bf16;
  for (const PrecisionSpec& precision : {PrecisionSpec(Precision::bf16), narrow, narrowest})
    for (const GradSync sync : {GradSync::step, GradSync::micro})
      for (const int ranks : {3, 5}) {
        const LayoutSpec ddp{.dp = ranks, .micro = 2, .grad_sync = sync, .uneven = Switch::on};
        const Learned plain = learn(named("llama_tied_scaled").spec, ddp, precision);
        for (const int stage : {1, 2, 3}) {
          LayoutSpec zero = ddp;
          zero.zero = stage;
          expect_equal(learn(named("llama_tied_scaled").spec, zero, precision), plain, to_text(zero));
        }
      }
}

TEST(ZeroBits, OfOtherSumsAreThoseOfDdpWithinRounding) {
  for (const ReduceKind reduce : {ReduceKind::ring, ReduceKind::tree, ReduceKind::native}) {
    const LayoutSpec ddp{.dp = 5, .micro = 2, .uneven = Switch::on, .reduce = reduce};
    const Learned plain = learn(tiny_specs()[1].spec, ddp, Precision::fp32);
    for (const int stage : {1, 2, 3}) {
      LayoutSpec zero = ddp;
      zero.zero = stage;
      expect_close(learn(tiny_specs()[1].spec, zero, Precision::fp32), plain, 1e-5, to_text(zero));
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
