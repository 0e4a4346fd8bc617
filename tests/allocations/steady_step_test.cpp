// What a steady step takes of the heap, counted at operator new, in all threads of the program.
#include <gtest/gtest.h>

#include <barrier>

#include "allocations/counted_steps.h"
#include "comm/threads/run_ranks.h"
#include "spec/layout/layout_toml.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

// By all ranks together.
NewCalls taken_by(const LayoutSpec& layout, int steps, bool large, const PrecisionSpec& precision) {
  const Replica::Options o = steady_options(layout, cut_specs()[8].spec, large, precision);
  const auto ranks = static_cast<int>(layout.ranks());
  NewCalls taken;
  std::barrier together(ranks);
  run_ranks(ranks, [&](std::unique_ptr<Communicator> group) {
    const bool first = group->rank() == 0;
    const NewCalls mine = count_steps(o, *group, steps, first, [&] { together.arrive_and_wait(); });
    if (first) taken = mine;
  });
  return taken;
}

class SteadyStep : public ::testing::TestWithParam<const char*> {};

TEST_P(SteadyStep, TakesNothingOfTheSizeOfItsTensors) {
  if (!kCountsNew) GTEST_SKIP() << "a sanitizer has operators of its own";
  const LayoutSpec layout = parse_layout(GetParam());
  const PrecisionSpec narrow{Precision::bf16, StateType::bf16, StateType::bf16, StateType::bf16};
  for (const PrecisionSpec& precision : {PrecisionSpec(Precision::fp32), narrow})
    for (const bool large : {false, true}) {
      const NewCalls taken = taken_by(layout, 2, large, precision);
      expect_bookkeeping_alone(taken, fmt::format("{}, {}", GetParam(), large));
      EXPECT_GT(taken.calls, 0) << "nothing is counted";
    }
}

TEST(SteadySteps, TakeTheSameEachTime) {
  if (!kCountsNew) GTEST_SKIP() << "a sanitizer has operators of its own";
  for (const char* text : {"micro=3", "dp=3,micro=2", "tp=2", "pp=2,micro=4"}) {
    const LayoutSpec layout = parse_layout(text);
    const NewCalls one = taken_by(layout, 1, false, Precision::fp32),
                   eight = taken_by(layout, 8, false, Precision::fp32);
    // Who waits for whom differs from step to step, and with it a little of this.
    EXPECT_NEAR(static_cast<double>(eight.bytes) / 8, static_cast<double>(one.bytes),
                0.1 * static_cast<double>(one.bytes))
        << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, SteadyStep,
                         ::testing::Values("dp=1", "micro=3", "dp=2", "dp=3,micro=2", "dp=2,dp_kind=central",
                                           "dp=2,bucket=0", "dp=4,zero=1", "dp=4,zero=2,micro=3", "dp=4,zero=3", "tp=2",
                                           "tp=2,sp=off", "cp=2", "cp=2,cp_kind=ulysses", "pp=2,micro=4",
                                           "pp=2,micro=4,schedule=zb-h1", "dp=2,pp=2,tp=2,micro=2",
                                           "dp=2,reduce=ring"));

}  // namespace
}  // namespace lockstep::tests
