// A falsified machine file is brought back by runs that took what the true one says.
#include "plan/machine_refinement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "plan/layout_score.h"
#include "spec/layout/layout_toml.h"
#include "spec/model/presets.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

struct Refined {
  explicit Refined(const std::string& layout) : spec(run_of(layout)), data(spec), stages(plan_stages(spec, data)) {}
  static RunSpec run_of(const std::string& layout) {
    RunSpec run;
    run.model = *preset("llama-1m");
    run.data.synthetic = SyntheticSpec{.vocabulary = run.model.vocabulary, .order = 1};
    run.data.seq = 64;
    run.train.global_batch = 4;
    run.run.threads = 1;
    run.layout = parse_layout(layout);
    return run;
  }
  StepPrediction on(const MachineSpec& machine) const { return predict_step(spec, machine, data, stages); }
  // A run that takes what this machine says.
  RefiningRun as_on(const MachineSpec& machine) const {
    const StepPrediction said = on(machine);
    return {.name = to_text(spec.layout),
            .step_seconds = said.step_seconds,
            .exposed = said.exposed,
            .ranks = spec.layout.ranks(),
            .predict = [this](const MachineSpec& other) { return on(other); }};
  }
  RunSpec spec;
  RunData data;
  std::vector<Plan> stages;
};

TEST(Refinement, OfProductsFalsifiedByHalfBringsTheErrorBelowATenth) {
  const MachineSpec truth = find_machine("laptop");
  const Refined one("dp=1"), two("dp=2");
  for (const double factor : {1.5, 1 / 1.5}) {
    MachineSpec wrong = truth;
    wrong.products.best *= factor;
    const MachineRefinement refined = refine_machine(wrong, {one.as_on(truth), two.as_on(truth)});
    for (const RefinedRun& run : refined.runs) {
      EXPECT_GT(std::abs(run.error_before()), 0.1) << run.name;
      EXPECT_LT(std::abs(run.error_after()), 0.1) << run.name;
    }
    EXPECT_EQ(factor > 1, refined.compute > 1);
    EXPECT_EQ(refined.machine, refine_machine(wrong, {one.as_on(truth), two.as_on(truth)}).machine) << "deterministic";
    EXPECT_EQ(parse_machine(to_toml(refined.machine), "refined"), refined.machine) << "a file may state it";
  }
}

TEST(Refinement, LeavesATrueFileAloneAndMessagesThatNobodyWaitsFor) {
  const MachineSpec truth = find_machine("laptop");
  const Refined one("dp=1");
  EXPECT_EQ(refine_machine(truth, {one.as_on(truth)}).machine, truth);
  MachineSpec wrong = truth;
  wrong.products.best /= 1.5;
  const MachineRefinement refined = refine_machine(wrong, {one.as_on(truth)});
  EXPECT_FALSE(refined.messages);
  EXPECT_EQ(refined.machine.sum_rate, truth.sum_rate);
  EXPECT_EQ(refined.machine.copy_rate, truth.copy_rate);
}

TEST(Refinement, FindsRatesOfMessagesFromWaits) {
  const MachineSpec truth = find_machine("laptop");
  MachineSpec wrong = truth;
  wrong.sum_rate *= 3, wrong.copy_rate *= 3;
  const Refined two("dp=2,overlap=off"), split("tp=2");
  const MachineRefinement refined = refine_machine(wrong, {two.as_on(truth), split.as_on(truth)});
  ASSERT_TRUE(refined.messages);
  EXPECT_GT(*refined.messages, 1.5);
  for (const Refined* run : {&two, &split}) {
    const double true_waits = run->on(truth).exposed_seconds();
    EXPECT_LT(std::abs(run->on(refined.machine).exposed_seconds() - true_waits),
              std::abs(run->on(wrong).exposed_seconds() - true_waits));
  }
}

TEST(Refinement, IsBounded) {
  const MachineSpec truth = find_machine("laptop");
  const Refined one("dp=1");
  RefiningRun run = one.as_on(truth);
  run.step_seconds *= 100;
  const MachineRefinement refined = refine_machine(truth, {run});
  EXPECT_EQ(refined.compute, kMostRefined);
  EXPECT_DOUBLE_EQ(refined.machine.products.best, truth.products.best / kMostRefined);
}

TEST(LayoutScores, HaveErrorsTheWorstAndTheOrder) {
  const std::vector<ScoredLayout> layouts{{"a", 1.0, 1.1, 0.01},
                                          {"b", 2.0, 1.0, 0.6},  // off by a whole, and no better with itself
                                          {"c", 1.5, 1.2, 0.01},
                                          {"d", 1.2, 1.3, 0.01},
                                          {"e", 1.3, 1.3, 0.01}};
  const LayoutScore score = score_layouts(layouts);
  EXPECT_NEAR(score.median_error, 1 - 1 / 1.1, 1e-12);
  EXPECT_EQ(score.worst, 1u);
  EXPECT_EQ(score.worst_error, 1);
  EXPECT_EQ(score.beyond, std::vector<std::size_t>{2});
  EXPECT_EQ(score.first, (std::vector<std::size_t>{0, 3, 4}));
  EXPECT_NEAR(score.first_over_fastest, 0.1, 1e-12);
}

}  // namespace
}  // namespace lockstep::tests
