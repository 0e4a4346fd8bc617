// Memory over one step: what it holds is the plan's, to the byte and by tag; what is in use fits into that, nearly
// fills it where most is, and is the sum of the tensors that are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/plan.h"
#include "plan/step_memory.h"
#include "support/mesh_matrix.h"

namespace lockstep::tests {
namespace {

std::int64_t bytes_at(const StepMemory::ByTag& bytes, Tag tag) { return bytes[static_cast<std::size_t>(tag)]; }

std::int64_t most_of_tag(const MemoryTimeline& line, Tag tag) {
  std::int64_t most = 0;
  for (const StepMemory::ByTag& now : line.memory.in_use) most = std::max(most, bytes_at(now, tag));
  return most;
}

void expect_the_plans(const MemoryTimeline& line, const Plan& plan) {
  EXPECT_EQ(line.most(), plan.peak);
  EXPECT_EQ(line.most_held(), plan.peaks);
  StepMemory::ByTag named{};
  for (const TensorInUse& one : line.at_peak) named[static_cast<std::size_t>(one.tag)] += one.bytes;
  EXPECT_EQ(named, line.memory.in_use[line.peak]);
  EXPECT_TRUE(std::ranges::is_sorted(line.at_peak, std::greater<>(), &TensorInUse::bytes));
  ASSERT_EQ(line.memory.in_use.size(), line.actions.size());
  for (std::size_t i = 0; i < line.actions.size(); ++i) {
    EXPECT_LE(line.in_use(i), line.in_use(line.peak)) << i;
    for (std::size_t t = 0; t < kTags; ++t) EXPECT_LE(line.memory.in_use[i][t], line.held[i][t]) << i;
  }
}

TEST(MemoryTimeline, HoldsWhatThePlanSaysUnderEveryLayoutAndRecomputation) {
  int compared = 0;
  double least = 1;
  for (const MeshCase& one : mesh_sample(30, 20))
    for (const Recompute level : kRecomputes) {
      SCOPED_TRACE(fmt::format("{}, recompute {}", one.words(), static_cast<int>(level)));
      RunSpec run = one.run(Precision::fp32);
      run.memory.recompute = level;
      run.train.save_last = false;
      const std::vector<Plan> stages = plan_stages(run);
      for (const Plan* plan : {&fullest(stages), &stages.back()}) {
        const MemoryTimeline line = memory_timeline(run, plan->rank);
        expect_the_plans(line, *plan);
        for (const Tag tag : {Tag::activation, Tag::gathered})
          if (const std::int64_t held = bytes_at(line.most_held(), tag); held > 0)
            least = std::min(least, static_cast<double>(most_of_tag(line, tag)) / static_cast<double>(held));
        ++compared;
      }
    }
  EXPECT_GE(compared, 90);
  EXPECT_GE(least, 0.9) << "of the places for activations or gathered weights are in use at once";
}

}  // namespace
}  // namespace lockstep::tests
