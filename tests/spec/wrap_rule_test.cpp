// Which blocks go in one call, and what that and the prefetch make of a step's list.
#include "spec/layout/wrap_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "spec/model/model_units.h"
#include "spec/pipeline/stage_step.h"
#include "spec/step/residency.h"
#include "spec/step/world_faults.h"

namespace lockstep::tests {
namespace {

using ::testing::ElementsAre;

TEST(WrapRule, ReadsWhatItWrites) {
  for (const char* text : {"block", "halves", "1MiB", "64MiB", "4+4", "1+2+3", "8"}) {
    const auto rule = WrapRule::parse(text);
    ASSERT_TRUE(rule) << text;
    EXPECT_EQ(rule->text(), text);
  }
  for (const char* text : {"", "blocks", "half", "halves+4", "0MiB", "64MB", "-1MiB", "4+0+4", "4+", "0-3", "MiB",
                           "1.5MiB", "9999999MiB", "0"})
    EXPECT_FALSE(WrapRule::parse(text)) << text;
}

constexpr std::int64_t kMiB = 1 << 20;
const std::vector<std::int64_t> kUnitBytes{9 * kMiB, 2 * kMiB, 2 * kMiB, 2 * kMiB, 2 * kMiB, 2 * kMiB, 7 * kMiB};

TEST(WrapRule, TakesBlocksUntilTheyHaveTheSize) {
  const Stages one;
  EXPECT_THAT(bundles_of(WrapRule{}, one, kUnitBytes), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(bundles_of(WrapRule::of_size(2), one, kUnitBytes), ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(bundles_of(WrapRule::of_size(3), one, kUnitBytes), ElementsAre(0, 1, 1, 3, 3, 5, 6));
  EXPECT_THAT(bundles_of(WrapRule::of_size(5), one, kUnitBytes), ElementsAre(0, 1, 1, 1, 4, 4, 6));
  EXPECT_THAT(bundles_of(WrapRule::of_size(1000), one, kUnitBytes), ElementsAre(0, 1, 1, 1, 1, 1, 6));
}

// Embedding, three blocks as attention and feed-forward, head.
TEST(WrapRule, OfHalvesHasUnitsOfItsOwnAndNoBundles) {
  const ModelUnits halves{.layers = 3, .halves = true}, blocks{.layers = 3};
  EXPECT_EQ(halves.count(), 8);
  EXPECT_EQ(blocks.count(), 5);
  EXPECT_EQ(halves.head(), 7);
  std::vector<std::int64_t> block_of;
  for (int u = 0; u < halves.count(); ++u) block_of.push_back(halves.is_of_block(u) ? halves.block_of(u) : -1);
  EXPECT_THAT(block_of, ElementsAre(-1, 0, 0, 1, 1, 2, 2, -1));
  std::vector<int> first;
  for (int part = 0; part <= 4; ++part) {
    first.push_back(halves.first_of(part));
    EXPECT_EQ(blocks.first_of(part), part);
  }
  EXPECT_THAT(first, ElementsAre(0, 1, 3, 5, 7));
  const std::vector<std::int64_t> bytes(8, kMiB);
  EXPECT_THAT(bundles_of(WrapRule::of_halves(), {}, bytes), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(WrapRule, EndsABundleWhereAChunkEnds) {
  const Stages two{.begins = {0, 3}, .stage_of = {0, 1}};  // blocks 1 and 2; 3 to 5
  EXPECT_THAT(bundles_of(WrapRule::of_size(1000), two, kUnitBytes), ElementsAre(0, 1, 1, 3, 3, 3, 6));
  EXPECT_THAT(bundles_of(WrapRule::of_blocks({1, 4}), two, kUnitBytes), ElementsAre(0, 1, 2, 3, 3, 3, 6));
  EXPECT_THAT(bundles_of(WrapRule::of_blocks({1, 4}), {}, kUnitBytes), ElementsAre(0, 1, 2, 2, 2, 2, 6));
  EXPECT_THAT(bundles_of(WrapRule::of_blocks({2, 1, 2}), {}, kUnitBytes), ElementsAre(0, 1, 1, 3, 4, 4, 6));
}

std::string words_of(const std::vector<Action>& list) {
  std::string text;
  for (const Action& a : list) text.append(text.empty() ? "" : " ").append(to_string(a));
  return text;
}

TEST(Prefetch, OfNoneGathersRightBeforeThePhase) {
  EXPECT_EQ(words_of(forward_pass({.units = 4, .gathers = true, .prefetch = 0})),
            "gather(0) forward(0, 0) release(0) gather(1) forward(1, 0) release(1) gather(2) forward(2, 0) release(2) "
            "gather(3) forward(3, 0) release(3)");
}

TEST(Prefetch, OfTwoGathersTwoAheadAndTheNearestFirst) {
  EXPECT_EQ(words_of(forward_pass({.units = 5, .gathers = true, .prefetch = 2})),
            "gather(0) gather(1) gather(2) forward(0, 0) release(0) gather(3) forward(1, 0) release(1) gather(4) "
            "forward(2, 0) release(2) forward(3, 0) release(3) forward(4, 0) release(4)");
  const std::string step = words_of(serial_step({.units = 7, .gathers = true, .prefetch = 2}));
  // The two blocks before the head stay for their backward.
  EXPECT_THAT(step, ::testing::HasSubstr("forward(5, 0) forward(6, 0) backward_input(6, 0) release(6) gather(3)"));
}

TEST(Bundles, AreGatheredTogetherAndReducedTogether) {
  const StepShape shape{.units = 6, .gathers = true, .bundles = {0, 1, 1, 3, 3, 5}};
  const std::vector<Action> list = serial_step(shape);
  const std::string step = words_of(list);
  EXPECT_EQ(step.substr(0, step.find(" norm")),
            "gather(0) gather(1) gather(2) forward(0, 0) release(0) gather(3) gather(4) forward(1, 0) release(1) "
            "forward(2, 0) release(2) gather(5) forward(3, 0) forward(4, 0) forward(5, 0) backward_input(5, 0) "
            "release(5) gather(1) gather(2) backward_weight(5, 0) reduce(5) backward_input(4, 0) release(4) "
            "backward_weight(4, 0) backward_input(3, 0) release(3) backward_weight(3, 0) reduce(4) reduce(3) "
            "backward_input(2, 0) release(2) backward_weight(2, 0) backward_input(1, 0) release(1) "
            "backward_weight(1, 0) reduce(2) reduce(1) backward_input(0, 0) backward_weight(0, 0) reduce(0)");
  int calls = 0;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].kind == ActionKind::gather) calls += !goes_with_next(list, i, shape);
  EXPECT_EQ(calls, 5);
}

// Of any model, schedule, prefetch and rule: a step, whose lists fit each other, that holds no more than it may.
TEST(Bundles, MakeStepsOfEverySchedule) {
  int lists = 0;
  for (const int stages : {1, 2, 3})
    for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::afab, ScheduleKind::zb_h1})
      for (const int micro : {1, 4})
        for (const bool tied : {false, true})
          for (const bool each : {false, true})
            for (const int prefetch : {0, 1, 2, 3, 99})
              for (const int size : {1, 2, 3, 99}) {
                const int units = 10;
                const PipelineSchedule schedule = make_schedule(kind, {stages, micro, 1});
                StepShape shape{.units = units,
                                .micro = micro,
                                .tie_owner = tied ? 0 : -1,
                                .tie_borrower = tied ? units - 1 : -1,
                                .reduces_each = each,
                                .gathers = true,
                                .prefetch = prefetch};
                shape.stages = {.begins = {}, .stage_of = schedule.stage_of};
                for (int s = 0; s < stages; ++s) shape.stages.begins.push_back(s * units / stages);
                shape.bundles =
                    bundles_of(WrapRule::of_size(size), shape.stages, std::vector<std::int64_t>(units, kMiB));
                WorldLists world{.shape = shape, .dp = 2, .ranks = {}};
                for (int copy = 0; copy < 2; ++copy)
                  for (int s = 0; s < stages; ++s) {
                    shape.stage = s;
                    world.ranks.push_back(pipeline_step(schedule, shape));
                  }
                EXPECT_EQ(find_world_fault(world), std::nullopt) << stages << " stages, " << prefetch << ", " << size;
                for (const std::vector<Action>& list : world.ranks) {
                  ++lists;
                  std::set<int> whole;  // units
                  for (const Action& a : list) {
                    if (a.kind == ActionKind::gather) whole.insert(a.unit);
                    if (a.kind == ActionKind::release) whole.erase(a.unit);
                    std::set<int> bundles;
                    for (const int u : whole) bundles.insert(shape.bundle_of(u));
                    // A tied table is read beside the head.
                    EXPECT_LE(std::ssize(bundles), prefetch + (tied ? 3 : 1)) << prefetch << ", " << size;
                  }
                }
              }
  EXPECT_GE(lists, 1000);
}

}  // namespace
}  // namespace lockstep::tests
