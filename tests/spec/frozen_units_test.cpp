// Units that are frozen have a forward, an input phase where something before them is trained, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/pipeline/stage_step.h"
#include "spec/step/world_faults.h"

namespace lockstep::tests {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> texts_of(const std::vector<Action>& list) {
  std::vector<std::string> all;
  for (const Action& a : list) all.push_back(to_string(a));
  return all;
}

TEST(FrozenUnits, HaveNoWorkBelowWhatIsTrainedAndNoneOfTheirOwn) {
  const StepShape shape{.units = 5, .micro = 1, .frozen = {true, false, true, false, true}};
  const std::vector<Action> list = serial_step(shape);
  EXPECT_THAT(texts_of(list),
              ElementsAre("forward(0, 0)", "forward(1, 0)", "forward(2, 0)", "forward(3, 0)", "forward(4, 0)",
                          "backward_input(4, 0)", "backward_input(3, 0)", "backward_weight(3, 0)", "reduce(3)",
                          "backward_input(2, 0)", "backward_input(1, 0)", "backward_weight(1, 0)", "reduce(1)", "norm",
                          "update(1)", "update(3)"));
  EXPECT_EQ(find_fault(list, shape), std::nullopt);
  StepShape late = shape;
  late.frozen = {true, true, true, false, true};
  EXPECT_THAT(texts_of(serial_step(late)),
              ElementsAre("forward(0, 0)", "forward(1, 0)", "forward(2, 0)", "forward(3, 0)", "forward(4, 0)",
                          "backward_input(4, 0)", "backward_input(3, 0)", "backward_weight(3, 0)", "reduce(3)", "norm",
                          "update(3)"));
}

// What is left out is missed, and what a frozen unit never does is no action of the step.
TEST(FrozenUnits, AreChecked) {
  const StepShape shape{.units = 4, .micro = 2, .publishes = true, .frozen = {true, false, false, true}};
  const std::vector<Action> whole = serial_step(shape);
  ASSERT_EQ(find_fault(whole, shape), std::nullopt);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::vector<Action> less = whole;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_NE(find_fault(less, shape), std::nullopt) << to_string(whole[i]);
  }
  for (const Action& more :
       {Action{ActionKind::backward_input, 0, 1}, Action{ActionKind::backward_weight, 0, 1},
        Action{ActionKind::backward_weight, 3, 1}, Action{ActionKind::reduce, 0}, Action{ActionKind::reduce, 3},
        Action{ActionKind::update, 0}, Action{ActionKind::publish, 3}}) {
    std::vector<Action> all = whole;
    all.push_back(more);
    EXPECT_NE(find_fault(all, shape), std::nullopt) << to_string(more);
  }
}

TEST(FrozenUnits, SendNoGradientToStagesThatTrainNothing) {
  for (const ScheduleKind kind : {ScheduleKind::afab, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                  ScheduleKind::zb_h1, ScheduleKind::zb_v})
    for (const int first : {0, 1, 2, 3, 4, 5})
      for (const bool gathers : {false, true}) {
        const PipelineSchedule schedule = make_schedule(kind, {.stages = 3, .micro = 6, .chunks = usual_chunks(kind)});
        const int chunks = static_cast<int>(schedule.stage_of.size());
        WorldLists world{.shape = {}, .dp = 2, .ranks = {}};
        StepShape& shape = world.shape;
        shape.stages = {.begins = {}, .stage_of = schedule.stage_of};
        for (int k = 0; k < chunks; ++k) shape.stages.begins.push_back(k);
        shape.units = chunks + 1;
        shape.micro = 6;
        shape.tie_owner = 0;
        shape.tie_borrower = chunks;
        shape.reduces_each = shape.gathers = gathers;
        if (first >= chunks) continue;
        for (int u = 0; u < shape.units; ++u) shape.frozen.push_back(u < first || u == chunks || u == 0);
        std::size_t gradients = 0;
        for (int d = 0; d < 2; ++d)
          for (int s = 0; s < 3; ++s) {
            shape.stage = s;
            world.ranks.push_back(pipeline_step(schedule, shape));
            for (const Action& a : world.ranks.back()) {
              EXPECT_FALSE(a.kind >= ActionKind::send_tied_gradient) << "the tied weight is frozen: " << to_string(a);
              gradients += a.kind == ActionKind::send_input_gradient;
            }
            if (s == shape.stage_of(chunks) && s != shape.stage_of(0)) {
              EXPECT_TRUE(shape.has_copy(0)) << "and computed with";
            }
          }
        EXPECT_EQ(find_world_fault(world), std::nullopt) << name_of(kind) << ", " << first;
        std::size_t cuts = 0;  // between chunks of different stages, behind which something is trained
        for (int k = std::max(first, 1) + 1; k < chunks; ++k) cuts += shape.stage_of(k - 1) != shape.stage_of(k);
        EXPECT_EQ(gradients, 2 * 6 * cuts) << name_of(kind) << ", " << first;
      }
}

}  // namespace
}  // namespace lockstep::tests
