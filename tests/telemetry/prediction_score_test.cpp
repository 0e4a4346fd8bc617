// Predicted against measured, from records written by hand.
#include "telemetry/prediction_score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "telemetry/plan_file.h"

namespace lockstep {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Optional;
using ::testing::Pair;

std::vector<MeasuredStep> three_steps() {
  return {{.seconds = 9, .waited = SecondsByAxis{9, 9, 0, 0}, .bubble = 0.9},
          {.seconds = 0.2, .waited = SecondsByAxis{0.02, 0.04, 0, 0}, .bubble = 0.2},
          {.seconds = 0.3, .waited = SecondsByAxis{0.03, 0.05, 0, 0}, .bubble = 0.4}};
}

TEST(PredictionScores, AreOfMediansWithoutTheFirstStep) {
  const PredictionScore score = score_prediction(
      {.machine = "m", .step_seconds = 0.3, .exposed = {0.02, 0.045, 0, 0}, .bubble = 0.15}, three_steps());
  EXPECT_THAT(score.step.measured, Optional(DoubleNear(0.25, 1e-12)));
  EXPECT_THAT(score.step.error(), Optional(DoubleNear(0.2, 1e-12)));
  ASSERT_TRUE(score.by_axis[0] && score.by_axis[1]);
  EXPECT_THAT(score.by_axis[0]->error(), Optional(DoubleNear(-0.2, 1e-12)));
  EXPECT_THAT(score.by_axis[1]->error(), Optional(DoubleNear(0, 1e-12)));
  EXPECT_FALSE(score.by_axis[2]) << "neither predicted nor measured";
  EXPECT_THAT(score.exposed.measured, Optional(DoubleNear(0.07, 1e-12)));
  ASSERT_TRUE(score.bubble);
  EXPECT_THAT(score.bubble->error(), Optional(DoubleNear(-0.5, 1e-12)));
  EXPECT_THAT(score_lines(score), ElementsAre(Pair("step", "300 ms predicted, 250 ms measured, error +20.0%"),
                                              Pair("exposed, dp", "20.0 ms predicted, 25.0 ms measured, error -20.0%"),
                                              Pair("exposed, pp", "45.0 ms predicted, 45.0 ms measured, error +0.0%"),
                                              Pair("exposed, all", "65.0 ms predicted, 70.0 ms measured, error -7.1%"),
                                              Pair("bubble", "15.0% predicted, 30.0% measured, error -50.0%")));
}

// Of every three steps one synchronizes: the median step is one that does not, and says nothing of the mean.
TEST(PredictionScores, OfLocalStepsAreOfMeansOverAsManyAsAreBetweenSynchronizations) {
  std::vector<MeasuredStep> steps{{.seconds = 9}};
  for (const double mean : {0.2, 0.5, 0.3})
    for (const double of_mean : {0.5, 2.0, 0.5}) steps.push_back({.seconds = of_mean * mean});
  steps.push_back({.seconds = 7});  // of a mean that is not whole
  EXPECT_THAT(score_prediction({.step_seconds = 0.3, .every = 3}, steps).step.error(), Optional(DoubleNear(0, 1e-12)));
  EXPECT_FALSE(score_prediction({.step_seconds = 0.3, .every = 30}, steps).step.measured);
}

TEST(PredictionScores, SayWhatWasNotMeasured) {
  const PredictionScore none = score_prediction({.step_seconds = 0.3, .exposed = {0.02, 0, 0, 0}}, {});
  EXPECT_FALSE(none.step.measured || none.step.error() || none.bubble);
  const PredictionScore untimed = score_prediction({.step_seconds = 0.3, .exposed = {0.02, 0, 0, 0}}, {{.seconds = 1}});
  EXPECT_THAT(untimed.step.measured, Optional(1.0));
  EXPECT_THAT(score_lines(untimed).back(), Pair("exposed, dp", "20.0 ms predicted, not measured"));
}

TEST(PredictionScores, ReadTheirPredictionFromThePlan) {
  const RunPlan plan = parse_run_plan(
      R"({"predicted":{"machine":"m","step_seconds":0.5,"mfu":0.4,"bubble":null,"exposed_seconds":{"tp":0.125}}})");
  ASSERT_TRUE(plan.predicted);
  EXPECT_EQ(plan.predicted->machine, "m");
  EXPECT_EQ(plan.predicted->step_seconds, 0.5);
  EXPECT_EQ(plan.predicted->exposed, (SecondsByAxis{0, 0, 0, 0.125}));
  EXPECT_THAT(plan.predicted->mfu, Optional(0.4));
  EXPECT_FALSE(plan.predicted->bubble);
  EXPECT_EQ(plan.predicted->every, 1);
  EXPECT_EQ(parse_run_plan(R"({"predicted":{"step_seconds":1,"local_steps":{"every":16}}})").predicted->every, 16);
  for (const char* damaged :
       {R"({})", R"({"predicted":7})", R"({"predicted":{"step_seconds":-1}})", R"({"predicted":{"step_seconds":"x"}})"})
    EXPECT_FALSE(parse_run_plan(damaged).predicted) << damaged;
}

}  // namespace
}  // namespace lockstep
