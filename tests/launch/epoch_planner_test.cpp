// Where the ranks of the next epoch run.
#include "launch/epoch_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::tests {
namespace {

using ::testing::ElementsAre;

constexpr RankSlot at(int agent, int number) { return {agent, number}; }

// Pairs of ranks: tp=2 and any dp.
std::optional<LaunchLayout> pairs(int slots) {
  if (slots < 2) return std::nullopt;
  return LaunchLayout{.ranks = slots / 2 * 2, .text = "tp=2"};
}

EpochPlanner planner_of(std::vector<OnFault> rules, int ranks = 4) {
  return EpochPlanner({.wanted = {.ranks = ranks}, .rules = std::move(rules), .layouts = pairs});
}

TEST(EpochPlanner, FillsHostsInTheirOrderAndLeavesTheRestAsSpares) {
  EpochPlanner planner = planner_of({OnFault::restart});
  planner.joined(2, 2);
  planner.joined(0, 2);
  planner.joined(1, 2);
  const auto first = planner.first();
  ASSERT_TRUE(first);
  EXPECT_THAT(first->slots, ElementsAre(at(0, 0), at(0, 1), at(1, 0), at(1, 1)));
}

TEST(EpochPlanner, StartsTheSameRanksAgainUnlessOneSlotIsToBlameTwiceWithoutProgress) {
  EpochPlanner planner = planner_of({OnFault::restart, OnFault::spare});
  planner.joined(0, 5);
  const Epoch first = *planner.first();
  const auto once = planner.after_fault(first, {at(0, 1)}, true);
  EXPECT_EQ(once.rule, OnFault::restart);
  EXPECT_EQ(once.epoch->slots, first.slots);
  EXPECT_EQ(once.epoch->number, first.number + 1);
  EXPECT_TRUE(once.epoch->resumes);
  const auto twice = planner.after_fault(*once.epoch, {at(0, 1)}, false);
  EXPECT_EQ(twice.rule, OnFault::spare);
  EXPECT_THAT(twice.epoch->slots, ElementsAre(at(0, 0), at(0, 2), at(0, 3), at(0, 4)));
  // The slot that failed is no spare of the next fault.
  const auto again = planner.after_fault(*twice.epoch, {at(0, 2)}, true);
  EXPECT_EQ(again.rule, OnFault::restart);
  const auto none = planner.after_fault(*again.epoch, {at(0, 2)}, false);
  EXPECT_FALSE(none.epoch);
  EXPECT_FALSE(none.waits);
}

TEST(EpochPlanner, ProgressForgivesASlot) {
  EpochPlanner planner = planner_of({OnFault::restart});
  planner.joined(0, 4);
  Epoch epoch = *planner.first();
  for (int fault = 0; fault < 5; ++fault) {
    const auto next = planner.after_fault(epoch, {at(0, 3)}, true);
    ASSERT_TRUE(next.epoch) << fault;
    epoch = *next.epoch;
  }
}

TEST(EpochPlanner, ASpareHostTakesThePlaceOfALostOneAndRanksOfAHostStayTogether) {
  EpochPlanner planner = planner_of({OnFault::restart, OnFault::spare, OnFault::shrink});
  for (int agent = 0; agent < 3; ++agent) planner.joined(agent, 2);
  const Epoch first = *planner.first();
  planner.lost(0);
  const auto next = planner.after_fault(first, {at(0, 0), at(0, 1)}, true);
  EXPECT_EQ(next.rule, OnFault::spare);
  EXPECT_THAT(next.epoch->slots, ElementsAre(at(1, 0), at(1, 1), at(2, 0), at(2, 1)));
}

TEST(EpochPlanner, ShrinksToALayoutThatTheSlotsAllowAndGrowsBackWhenAHostReturns) {
  EpochPlanner planner = planner_of({OnFault::restart, OnFault::spare, OnFault::shrink}, 6);
  for (int agent = 0; agent < 2; ++agent) planner.joined(agent, 3);
  const Epoch first = *planner.first();
  EXPECT_FALSE(planner.find_larger(first));
  planner.lost(1);
  const auto next = planner.after_fault(first, {at(1, 0), at(1, 1), at(1, 2)}, true);
  EXPECT_EQ(next.rule, OnFault::shrink);
  EXPECT_EQ(next.epoch->layout.ranks, 2);
  EXPECT_THAT(next.epoch->slots, ElementsAre(at(0, 0), at(0, 1)));
  EXPECT_FALSE(planner.find_larger(*next.epoch));
  planner.joined(1, 1);
  EXPECT_EQ(planner.find_larger(*next.epoch)->layout.ranks, 4);
  planner.joined(1, 3);
  const auto back = planner.find_larger(*next.epoch);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->layout, first.layout);
  EXPECT_EQ(back->slots, first.slots);
}

TEST(EpochPlanner, ASlotThatWasReplacedIsUsedAgainOnlyWhenItsAgentHasJoinedAnew) {
  EpochPlanner planner = planner_of({OnFault::shrink}, 4);
  planner.joined(0, 4);
  const Epoch first = *planner.first();
  const auto smaller = planner.after_fault(first, {at(0, 0)}, true);
  EXPECT_EQ(smaller.epoch->layout.ranks, 2);
  EXPECT_FALSE(planner.find_larger(*smaller.epoch));
  planner.joined(0, 4);
  EXPECT_EQ(planner.find_larger(*smaller.epoch)->layout.ranks, 4);
}

TEST(EpochPlanner, WaitsWhereThatIsTheRuleAndEndsWhereNoRuleApplies) {
  for (const bool waits : {true, false}) {
    EpochPlanner planner =
        planner_of(waits ? std::vector{OnFault::restart, OnFault::wait} : std::vector{OnFault::restart});
    planner.joined(0, 2);
    planner.joined(1, 2);
    const Epoch first = *planner.first();
    planner.lost(1);
    const auto next = planner.after_fault(first, {at(1, 0), at(1, 1)}, true);
    EXPECT_FALSE(next.epoch);
    EXPECT_EQ(next.waits, waits);
    planner.joined(1, 2);
    EXPECT_EQ(planner.after_fault(first, {}, true).epoch->slots, first.slots);
  }
}

TEST(EpochPlanner, RanksOfOneProcessHaveOneSlotAndAreStartedAgainHoweverOften) {
  EpochPlanner planner({.wanted = {.ranks = 8}, .one_process = true, .layouts = pairs});
  planner.joined(0, 1);
  Epoch epoch = *planner.first();
  EXPECT_THAT(epoch.slots, ElementsAre(at(0, 0)));
  for (int fault = 0; fault < 4; ++fault) {
    const auto next = planner.after_fault(epoch, {at(0, 0)}, false);
    ASSERT_TRUE(next.epoch);
    EXPECT_EQ(next.rule, OnFault::restart);
    EXPECT_EQ(next.epoch->layout.ranks, 8);
    epoch = *next.epoch;
  }
}

}  // namespace
}  // namespace lockstep::tests
