// Worlds that random edits seldom come to, most of them circles that one wait too many closes. Each beside one that is
// right, to show what it is about.
#include <gtest/gtest.h>

#include "spec/world_mutations.h"
#include "spec/world_verdicts.h"

namespace lockstep::tests {
namespace {

using List = std::vector<Action>;
constexpr ActionKind F = ActionKind::forward, I = ActionKind::backward_input, W = ActionKind::backward_weight;

void insert_behind(List& list, Action place, const List& added) {
  list.insert(std::ranges::find(list, place) + 1, added.begin(), added.end());
}
void move_behind(List& list, Action place, const List& moved) {
  for (const Action& a : moved) list.erase(std::ranges::find(list, a));
  insert_behind(list, place, moved);
}
bool both_accept(const WorldLists& world) { return both_accept(Reference(world), world, 1); }

// Two stages of a unit each, which ask for what a step needs right before it.
WorldLists two_stages(const std::string& text, const StepShape& like, int dp, int tp) {
  const PipelineSchedule schedule = parse_schedule(text, "two stages");
  StepShape shape = like;
  shape.units = 2;
  shape.micro = schedule.shape.micro;
  shape.stages = {.begins = {0, 1}, .stage_of = {0, 1}};
  return world_of(schedule, shape, dp, tp, false);
}

TEST(WorldByHand, RanksOfTpWaitForEachOtherAtAllTheyDoTogether) {
  // In front of `place` one rank sends a message that nobody has asked for yet, with two on their way; the other sends
  // behind it what has to be there before anybody asks.
  for (const Action& place : List{{F, 0, 4}, {I, 0, 0}, {W, 0, 0}, {ActionKind::reduce, 0, 0}}) {
    WorldLists world =
        two_stages("F0 F1 F2 F3 F4 B0 B1 B2 B3 B4\nF0 B0 F1 B1 F2 B2 F3 B3 F4 B4", {.reduces_each = true}, 1, 2);
    ASSERT_TRUE(both_accept(world));
    List early, late;
    for (int m = place.kind == F ? 0 : 1; m < 5; ++m) late.push_back({ActionKind::send_output, 0, m});
    if (place.kind != F) early.push_back(late.back());
    move_behind(world.ranks[0], place, late);
    move_behind(world.ranks[1], *(std::ranges::find(world.ranks[1], place) - 1), early);
    EXPECT_FALSE(both_accept(world)) << to_string(place);
    world.ranks[1] = world.ranks[0];
    EXPECT_TRUE(both_accept(world)) << to_string(place);
  }
}

// The unit is whole for the duration of the step, but for moments that are put in.
void lend(WorldLists& world, std::size_t r, const std::vector<int>& units) {
  world.shape.gathers = true;
  List& list = world.ranks[r];
  for (const int u : units) {
    list.insert(list.begin(), {ActionKind::gather, u});
    list.insert(std::ranges::find(list, ActionKind::norm, &Action::kind), {ActionKind::release, u});
  }
}
List moment(int unit) { return {{ActionKind::release, unit}, {ActionKind::gather, unit}}; }

// The first pipeline sends its second micro-batch when it has given up a unit that it has just asked for. The other
// pipeline asks for that unit when it has a gradient, for which its second stage needs weights; and those the first
// pipeline's asks for when it has had the second micro-batch.
TEST(WorldByHand, WeightsAreReleasedWhenAllHaveGatheredThem) {
  WorldLists world = two_stages("F0 F1 B0 B1\nF0 B0 F1 B1", {}, 2, 1);
  for (std::size_t r = 0; r < 4; ++r) lend(world, r, {static_cast<int>(r % 2)});
  insert_behind(world.ranks[1], {F, 1, 1}, moment(1));
  insert_behind(world.ranks[3], {F, 1, 0}, moment(1));
  for (const bool waits : {false, true}) {  // the first time it came long ago
    insert_behind(world.ranks[0], {F, 0, 1}, moment(0));
    insert_behind(world.ranks[2], {I, 0, 0}, moment(0));
    EXPECT_EQ(both_accept(world), !waits);
  }
}

// A tied gradient is sent when it is that of all ranks. The first pipeline sends it before all other gradients, the
// other one as soon as it can, for which it needs weights that the first gathers when it has a gradient.
TEST(WorldByHand, ATiedGradientIsSentWhenAllHaveReducedIt) {
  const StepShape tied{.tie_owner = 0, .tie_borrower = 1};
  for (const bool waits : {true, false}) {
    WorldLists world = two_stages("F0 F1 B0 B1\nF0 F1 B0 B1", tied, 2, 1);
    const WorldLists other = two_stages("F0 B0 F1 B1\nF0 B0 F1 B1", tied, 2, 1);
    for (const std::size_t r : {2, 3}) world.ranks[r] = other.ranks[r];
    if (!waits) {  // the first of the other gradients goes before it
      move_behind(world.ranks[1], {I, 1, 0}, {{ActionKind::send_input_gradient, 1, 0}});
      move_behind(world.ranks[0], {ActionKind::send_output, 0, 1}, {{ActionKind::receive_output_gradient, 0, 0}});
    }
    for (const std::size_t r : {0, 2}) lend(world, r, {0});
    for (const std::size_t r : {1, 3}) lend(world, r, {0, 1});
    for (const std::size_t r : {0, 2}) insert_behind(world.ranks[r], {I, 0, 0}, moment(0));
    EXPECT_EQ(both_accept(world), !waits);
  }
}

// The owner is in the middle of the model: it hands a gradient on behind its reduction, which waits for the tied one,
// and that is sent by the stage that waits for the gradient.
TEST(WorldByHand, AnOwnersReductionWaitsForTheTiedGradient) {
  const PipelineSchedule schedule = parse_schedule("F0@0 F0@3 B0@3 B0@0\nF0@1 F0@2 B0@2 B0@1", "there and back");
  const StepShape shape{
      .units = 4, .tie_owner = 1, .tie_borrower = 3, .stages = {.begins = {0, 1, 2, 3}, .stage_of = schedule.stage_of}};
  WorldLists world = world_of(schedule, shape, 1, 1, true);
  move_behind(world.ranks[0], {W, 0, 0}, {{ActionKind::send_tied_gradient, 3}});
  move_behind(world.ranks[1], {W, 1, 0},
              {{ActionKind::receive_tied_gradient, 1}, {ActionKind::send_input_gradient, 1, 0}});
  EXPECT_TRUE(both_accept(world));
  move_behind(world.ranks[1], {ActionKind::reduce, 1}, {{ActionKind::send_input_gradient, 1, 0}});
  EXPECT_FALSE(both_accept(world));
}

// A gather on one side of the norm here, on the other there.
TEST(WorldByHand, TheNormIsOneOfTheThingsThatRanksMeetOver) {
  const StepShape shape{.units = 2, .gathers = true};
  WorldLists world{.shape = shape, .dp = 2, .ranks = {2, serial_step(shape)}};
  for (List& list : world.ranks) {
    const List moment{{ActionKind::gather, 0}, {ActionKind::norm}, {ActionKind::release, 0}};
    const auto norm = std::ranges::find(list, ActionKind::norm, &Action::kind);
    list.insert(list.erase(norm), moment.begin(), moment.end());
  }
  EXPECT_TRUE(both_accept(world));
  for (List& list : world.ranks) {
    const auto norm = std::ranges::find(list, ActionKind::norm, &Action::kind);
    std::swap(norm[-1], norm[0]);
    EXPECT_EQ(both_accept(world), &list == &world.ranks[1]);
  }
}

// Where both are here, the borrower's gradient is added to the owner's as it stands.
TEST(WorldByHand, ATiesOwnerIsReducedWhenTheBorrowersGradientIsWhole) {
  const StepShape shape{.units = 2, .tie_owner = 0, .tie_borrower = 1};
  WorldLists world{.shape = shape, .ranks = {serial_step(shape)}};
  move_behind(world.ranks[0], {ActionKind::reduce, 0}, {{ActionKind::reduce, 1}});
  EXPECT_TRUE(both_accept(world));
  move_behind(world.ranks[0], {ActionKind::reduce, 0}, {{W, 1, 0}});
  EXPECT_FALSE(both_accept(world));
}

}  // namespace
}  // namespace lockstep::tests
