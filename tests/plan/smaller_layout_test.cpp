// The layout of a run that has lost ranks.
#include "plan/smaller_layout.h"

#include <gtest/gtest.h>

#include "plan/plan.h"
#include "spec/layout/layout_toml.h"
#include "spec/run/run_toml.h"

namespace lockstep::tests {
namespace {

RunSpec run_of(const std::string& layout, std::int64_t batch = 12) {
  RunSpec run = parse_run(R"(
[model]
family = "llama"
vocabulary = 64
layers = 4
width = 32
heads = 4
kv_heads = 4
ffn_width = 48
max_positions = 32
[data]
seq = 16
[data.synthetic]
vocabulary = 64
order = 1
[train]
steps = 6
)",
                          "run.toml", "/", {});
  run.train.global_batch = batch;
  run.layout = parse_layout(layout);
  return run;
}

std::string smaller(const std::string& layout, std::int64_t ranks, std::int64_t batch = 12, std::int64_t memory = 0) {
  const auto found = smaller_layout(run_of(layout, batch), ranks, memory);
  return found ? to_text(*found) : "none";
}

TEST(SmallerLayout, KeepsTpPpAndCpAndMakesDpSmaller) {
  EXPECT_EQ(smaller("dp=4,tp=2", 8), "dp=4,tp=2");
  EXPECT_EQ(smaller("dp=4,tp=2", 7), "dp=3,tp=2");
  EXPECT_EQ(smaller("dp=3,pp=2,zero=1", 5), "dp=2,pp=2,zero=1");
  EXPECT_EQ(smaller("dp=2,cp=2,tp=2", 7), "cp=2,tp=2");
}

TEST(SmallerLayout, DealsABatchThatDoesNotDivideUnevenly) {
  EXPECT_EQ(smaller("dp=8,zero=2", 5, 8), "dp=5,zero=2,uneven=on");
  EXPECT_EQ(smaller("dp=8,zero=2", 4, 8), "dp=4,zero=2");
}

TEST(SmallerLayout, GivesUpShardsThatNoLongerDivideTheRanks) {
  EXPECT_EQ(smaller("dp=4,zero=3,shard=2", 3), "dp=3,zero=3");
}

// Where not even one copy of the mesh is left, another mesh takes its place.
TEST(SmallerLayout, OfFewerRanksThanTheMeshHasIsAnotherMesh) {
  for (const std::int64_t ranks : {1, 2, 3}) {
    const auto found = smaller_layout(run_of("tp=4"), ranks);
    ASSERT_TRUE(found) << ranks;
    EXPECT_LE(found->ranks(), ranks);
    EXPECT_GE(found->ranks(), ranks == 3 ? 2 : ranks);
  }
}

TEST(SmallerLayout, NeverNeedsMoreMemoryThanARankHas) {
  const RunSpec run = run_of("dp=4,zero=3");
  const auto peak_of = [&](const LayoutSpec& layout) {
    RunSpec changed = run;
    changed.layout = layout;
    return fullest(plan_stages(changed)).peak;
  };
  const auto two = smaller_layout(run, 2);
  ASSERT_TRUE(two);
  const std::int64_t needed = peak_of(*two);
  EXPECT_TRUE(smaller_layout(run, 2, needed));
  const auto with_less = smaller_layout(run, 2, needed - 1);
  if (with_less) {
    EXPECT_LT(peak_of(*with_less), needed);
  }
  EXPECT_FALSE(smaller_layout(run, 2, 1024));
}

}  // namespace
}  // namespace lockstep::tests
