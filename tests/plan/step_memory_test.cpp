#include "plan/step_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/plan.h"
#include "support/tiny_specs.h"

namespace lockstep {
namespace {

RunSpec tiny_llama_run(const LayoutSpec& layout) {
  RunSpec spec;
  spec.model = tests::tiny_specs()[0].spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1};
  spec.data.seq = 8;
  spec.train.global_batch = 8;
  spec.train.save_last = false;
  spec.layout = layout;
  return spec;
}

std::int64_t most_of(const StepMemory& memory, Tag tag) {
  std::int64_t most = 0;
  for (const StepMemory::ByTag& bytes : memory.in_use) most = std::max(most, bytes[static_cast<std::size_t>(tag)]);
  return most;
}

// What is in use never exceeds what the plan says is held, and comes close: places are shared, not wasted.
TEST(StepMemory, UsesWhatThePlanHolds) {
  for (const LayoutSpec& layout : {LayoutSpec{}, LayoutSpec{.dp = 2, .micro = 2, .zero = 3},
                                   LayoutSpec{.dp = 2, .pp = 2, .micro = 4, .zero = 3}}) {
    SCOPED_TRACE(to_text(layout));
    const RunSpec spec = tiny_llama_run(layout);
    const StepMemory memory = step_memory(spec, 0);
    const Plan plan = plan_run(spec);
    for (int t = 0; t < kTags; ++t) {
      SCOPED_TRACE(name_of(static_cast<Tag>(t)));
      if (static_cast<Tag>(t) == Tag::data) continue;  // a plan of one rank has its own
      EXPECT_EQ(memory.held[static_cast<std::size_t>(t)], plan.current(static_cast<Tag>(t)));
      EXPECT_LE(most_of(memory, static_cast<Tag>(t)), memory.held[static_cast<std::size_t>(t)]);
    }
    const std::int64_t activations = memory.held[static_cast<std::size_t>(Tag::activation)];
    EXPECT_GE(most_of(memory, Tag::activation), activations / 2);
    EXPECT_GT(most_of(memory, Tag::activation), 0);
    EXPECT_EQ(most_of(memory, Tag::gathered) > 0, layout.zero == 3);
    // At the end no unit is whole, and nothing is kept but what a stage has sent last, which may be on its way.
    if (layout.pp == 1) {
      EXPECT_EQ(memory.in_use.back()[static_cast<std::size_t>(Tag::activation)], 0);
    }
    EXPECT_EQ(memory.in_use.back()[static_cast<std::size_t>(Tag::gathered)], 0);
  }
}

TEST(StepMemory, ActivationsGrowInTheForwardAndShrinkInTheBackward) {
  const StepMemory memory = step_memory(tiny_llama_run({}), 0);
  const auto at = [&](std::size_t i) { return memory.in_use[i][static_cast<std::size_t>(Tag::activation)]; };
  const std::size_t units = tiny_llama_run({}).model.layers + 2;
  for (std::size_t u = 1; u + 1 < units; ++u) EXPECT_GT(at(u), at(u - 1)) << u;  // forwards come first
  EXPECT_LT(at(memory.in_use.size() - units - 2), at(units - 1));
}

}  // namespace
}  // namespace lockstep
