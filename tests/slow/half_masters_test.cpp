// Masters of 16 bits learn what fp32 masters learn: 300 steps of 64 accumulated micro-batches.
#include <gtest/gtest.h>

#include "support/program.h"
#include "support/tiny_specs.h"
#include "train/loop.h"
#include "train/resume.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

double loss_after_300_steps(const PrecisionSpec& precision) {
  RunSpec run;
  run.model = tiny_specs()[0].spec;
  run.model.vocabulary = 16;
  run.model.init_std = 0.02;
  run.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 4};
  run.data.seq = 16;
  run.data.eval_share = 0.1;
  run.train = {.steps = 300, .global_batch = 64, .eval_every = 300, .eval_batches = 16, .save_every = 0, .seed = 2};
  run.train.save_last = false;
  run.optimizer.learning_rate = 3e-3;
  run.schedule.warmup = 20;
  run.layout.micro = 64;
  run.precision = precision;
  run.run.threads = 1;
  struct Last final : Watcher {
    double loss = 0;
    void evaluated(const EvalRecord& r) override { loss = r.loss; }
  } last;
  const TemporaryFolder folder;
  TrainingRun training(run, Device::cpu, folder.path());
  training.init_weights();
  Progress progress = beginning(training);
  train(training, progress, last);
  return last.loss;
}

TEST(HalfMasters, EndWithinTwoPercentOfFp32After300StepsOf64Accumulations) {
  const double full = loss_after_300_steps(Precision::fp32);
  EXPECT_LT(full, 1.6) << "it learns, or there is nothing to compare";
  for (const StateType moments : kStateTypes)
    EXPECT_NEAR(loss_after_300_steps({Precision::bf16, StateType::full, moments, StateType::bf16}), full, 0.02 * full)
        << "moments in " << name_of(moments);
}

}  // namespace
}  // namespace lockstep::tests
