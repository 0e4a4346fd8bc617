#include "bench/machine_step.h"

#include <gtest/gtest.h>

#include "plan/plan.h"
#include "plan/step_prediction.h"

namespace lockstep {
namespace {

double predicted(const MachineSpec& machine, const RunSpec& run) {
  const RunData data(run);
  return predict_step(run, machine, data, plan_stages(run, data)).step_seconds;
}

RunSpec small_step() {
  BenchSizes sizes = kOfACore;
  sizes.step = {.layers = 1, .width = 32, .ffn = 64, .head_width = 16, .vocabulary = 64, .tokens = 16, .samples = 2};
  return step_run(Device::cpu, Precision::fp32, sizes);
}

TEST(MachineStep, AFileIsScaledToWhatAStepTook) {
  const MachineSpec given = find_machine("laptop");
  const RunSpec run = step_run(Device::cpu, Precision::fp32, kOfACore);
  const double says = predicted(given, run);
  for (const double longer : {0.8, 1.0, 1.3}) {
    const MachineSpec held = held_to_step(given, run, longer * says);
    EXPECT_NEAR(predicted(held, run) / (longer * says), 1, 0.01) << longer;
    EXPECT_EQ(held.sum_rate, given.sum_rate);  // a step of one rank says nothing of messages
    EXPECT_EQ(held.intra_node, given.intra_node);
  }
}

TEST(MachineStep, TakesRealSteps) {
  int met = 0;
  const double seconds = measure_step(small_step(), [&] { ++met; });
  EXPECT_EQ(met, 1);
  EXPECT_GT(seconds, 1e-6);
  EXPECT_LT(seconds, 1);
}

}  // namespace
}  // namespace lockstep
