// The lists of pipelines without a flush: what the generator makes is one, and what is not is refused.
#include "spec/pipeline/pipedream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "spec/run/run_spec.h"

namespace lockstep::tests {
namespace {

constexpr std::array kUnflushed{ScheduleKind::pipedream, ScheduleKind::pipedream_2bw};

// Two units for each stage, and one more.
StepShape unflushed_shape(int stages, int micro) {
  StepShape shape{.units = 2 * stages + 1, .micro = micro};
  shape.stages = {.begins = {}, .stage_of = {}};
  for (int s = 0; s < stages; ++s) shape.stages.begins.push_back(2 * s), shape.stages.stage_of.push_back(s);
  return shape;
}

std::vector<PipeDreamLists> unflushed_lists(ScheduleKind kind, StepShape shape) {
  std::vector<PipeDreamLists> all;
  for (shape.stage = 0; shape.stage < shape.stages.count(); ++shape.stage) all.push_back(pipedream_lists(kind, shape));
  return all;
}

TEST(PipeDreamLists, AreOnesOfEveryShape) {
  for (const ScheduleKind kind : kUnflushed)
    for (int stages = 1; stages <= 8; ++stages)
      for (const int micro : {std::max(1, stages - 1), stages, stages + 1, 2 * stages + 1}) {
        const StepShape shape = unflushed_shape(stages, micro);
        EXPECT_EQ(find_pipedream_fault(kind, unflushed_lists(kind, shape), shape), std::nullopt)
            << name_of(kind) << " on " << stages << " stages with " << micro << " micro-batches";
      }
}

TEST(PipeDreamLists, AreOfTheTwoSchedulesThatChangeWhatIsLearned) {
  for (const ScheduleKind kind : kAllScheduleKinds) {
    RunSpec run;
    run.layout.schedule = kind;
    EXPECT_EQ(run.changes_numbers(), std::ranges::find(kUnflushed, kind) != kUnflushed.end()) << name_of(kind);
  }
}

// Counted anew: a version is kept from when it is made (the first, from the beginning) to its last use.
TEST(PipeDreamLists, KeepAsManyVersionsAsTheirDefinitionSays) {
  constexpr int kSteps = 4;
  for (const ScheduleKind kind : kUnflushed)
    for (const int stages : {1, 2, 3, 5}) {
      StepShape shape = unflushed_shape(stages, stages);
      for (shape.stage = 0; shape.stage < stages; ++shape.stage) {
        const PipeDreamStage of{.kind = kind, .stages = stages, .stage = shape.stage, .micro = shape.micro};
        const std::vector<Action> window = window_of(pipedream_lists(kind, shape), of, kSteps);
        const int unit = 2 * shape.stage;
        std::map<int, std::size_t> made{{0, 0}}, used;
        for (std::size_t i = 0; i < window.size(); ++i) {
          if (window[i].unit != unit) continue;
          if (window[i].kind == ActionKind::update) made[window[i].version] = i;
          if (is_phase(window[i].kind)) used[std::max(0, window[i].version)] = i;
        }
        int most = 0;
        for (std::size_t i = 0; i < window.size(); ++i) {
          int now = 0;
          // The newest is kept by itself: the next update is made from it.
          const auto newest = std::ranges::count_if(made, [&](const auto& m) { return m.second <= i; }) - 1;
          for (const auto& [version, since] : made)
            if (since <= i) now += version == newest || (used.contains(version) && used[version] > i);
          most = std::max(most, now);
        }
        EXPECT_EQ(most, kind == ScheduleKind::pipedream ? stages - shape.stage : 2) << name_of(kind) << " " << stages;
        EXPECT_LE(most - 1, of.stashes());
      }
    }
}

class BrokenPipeDream : public ::testing::Test {
 protected:
  StepShape shape_ = unflushed_shape(3, 4);
  std::vector<PipeDreamLists> lists_ = unflushed_lists(ScheduleKind::pipedream, shape_);

  static std::size_t find(const std::vector<Action>& list, ActionKind kind, int unit, int micro) {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].kind == kind && list[i].unit == unit && list[i].micro == micro) return i;
    ADD_FAILURE() << "there is no such action";
    return 0;
  }
  std::string fault() const { return find_pipedream_fault(ScheduleKind::pipedream, lists_, shape_).value_or("none"); }
};

TEST_F(BrokenPipeDream, OfAnotherVersionInTheBackwardIsRefused) {
  std::vector<Action>& list = lists_[0].steady;
  ++list[find(list, ActionKind::backward_input, 1, 0)].version;
  EXPECT_THAT(fault(), ::testing::HasSubstr("its forward used version"));
}

TEST_F(BrokenPipeDream, OfAnotherVersionInBothIsRefused) {
  for (std::vector<Action>* list : {&lists_[0].begin, &lists_[0].steady, &lists_[0].drain})
    for (Action& a : *list)
      if (is_phase(a.kind)) ++a.version;
  EXPECT_THAT(fault(), ::testing::HasSubstr("the schedule has it at version"));
}

TEST_F(BrokenPipeDream, WithoutAStashIsRefused) {
  std::vector<Action>& list = lists_[0].steady;
  std::erase_if(list, [](const Action& a) { return a.kind == ActionKind::stash && a.unit == 0 && a.version == 1; });
  EXPECT_THAT(fault(), ::testing::HasSubstr("is not kept"));
}

TEST_F(BrokenPipeDream, WithAStashAfterTheUpdateIsRefused) {
  std::vector<Action>& list = lists_[1].steady;
  const std::size_t update = find(list, ActionKind::update, 2, 1);
  std::swap(list[update], list[update - 1]);
  EXPECT_THAT(fault(), ::testing::HasSubstr("is at version"));
}

TEST_F(BrokenPipeDream, ThatStashesOnAStageOfOneVersionIsRefused) {
  lists_[2].begin.insert(lists_[2].begin.begin(), Action{ActionKind::stash, 4, -1, 0});
  EXPECT_THAT(fault(), ::testing::HasSubstr("this stage keeps one version"));
}

TEST_F(BrokenPipeDream, WithoutAnUpdateIsRefused) {
  std::vector<Action>& list = lists_[1].steady;
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(find(list, ActionKind::update, 3, 0)));
  EXPECT_NE(fault(), "none");
}

TEST_F(BrokenPipeDream, ThatUpdatesBeforeTheNormIsRefused) {
  std::vector<Action>& list = lists_[2].steady;
  const std::size_t norm = find(list, ActionKind::norm, -1, 2);
  std::swap(list[norm], list[norm + 1]);
  EXPECT_THAT(fault(), ::testing::HasSubstr("needs the micro-batch's norm first"));
}

TEST_F(BrokenPipeDream, WhoseNormComesBeforeAReductionIsRefused) {
  std::vector<Action>& list = lists_[2].steady;
  const std::size_t norm = find(list, ActionKind::norm, -1, 2), reduce = find(list, ActionKind::reduce, 4, 2);
  std::swap(list[norm], list[reduce]);
  EXPECT_THAT(fault(), ::testing::HasSubstr("needs reduce"));
}

TEST_F(BrokenPipeDream, ThatDrainsTooLittleIsRefused) {
  lists_[0].drain.clear();
  EXPECT_THAT(fault(), ::testing::HasSubstr("ends at version"));
}

TEST_F(BrokenPipeDream, WhoseMessagesAreNotReceivedIsRefused) {
  std::vector<Action>& list = lists_[1].steady;
  std::erase_if(list, [](const Action& a) { return a.kind == ActionKind::send_output && a.micro == 1; });
  EXPECT_NE(fault(), "none");
}

// Any two neighbours that change places, any action left out or doubled: refused, or the same to whoever runs it.
TEST(PipeDreamChecker, FindsEveryActionThatIsLeftOutOrDoubled) {
  for (const ScheduleKind kind : kUnflushed) {
    const StepShape shape = unflushed_shape(3, 3);
    const std::vector<PipeDreamLists> whole = unflushed_lists(kind, shape);
    for (std::size_t s = 0; s < whole.size(); ++s)
      for (std::vector<Action> PipeDreamLists::*which :
           {&PipeDreamLists::begin, &PipeDreamLists::steady, &PipeDreamLists::drain})
        for (std::size_t i = 0; i < (whole[s].*which).size(); ++i) {
          const Action gone = (whole[s].*which)[i];
          std::vector<PipeDreamLists> broken = whole;
          (broken[s].*which).erase((broken[s].*which).begin() + static_cast<std::ptrdiff_t>(i));
          EXPECT_TRUE(find_pipedream_fault(kind, broken, shape)) << "without " << to_string(gone);
          if (gone.kind == ActionKind::stash) continue;  // to copy the same twice is no fault
          broken = whole;
          (broken[s].*which).insert((broken[s].*which).begin() + static_cast<std::ptrdiff_t>(i), gone);
          EXPECT_TRUE(find_pipedream_fault(kind, broken, shape)) << "twice " << to_string(gone);
        }
  }
}

}  // namespace
}  // namespace lockstep::tests
