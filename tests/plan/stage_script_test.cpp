// One rank per stage stands for all ranks of a large world: what its script computes and sends is what the plan counts,
// and on a small world the clock agrees with one that has every rank.
#include "plan/stage_script.h"

#include <gtest/gtest.h>

#include "plan/device_clock.h"
#include "plan/kernel_prices.h"
#include "plan/plan.h"
#include "plan/step_prediction.h"
#include "spec/layout/layout_toml.h"
#include "spec/model/presets.h"
#include "train/run_data.h"

namespace lockstep::tests {
namespace {

RunSpec scripted_run(const std::string& layout, std::int64_t batch = 64) {
  RunSpec run;
  run.model = *preset("llama-1m");
  run.model.layers = 8;
  run.data.synthetic = SyntheticSpec{.vocabulary = run.model.vocabulary, .order = 1};
  run.data.seq = 256;
  run.train.global_batch = batch;
  run.precision.compute = Precision::bf16;
  run.run.device = RunDevice::cuda;
  run.layout = parse_layout(layout);
  return run;
}

MachineSpec scripted_machine() {
  MachineSpec machine = find_machine("h100-sxm");
  machine.nodes = 64;
  return machine;
}

class StageScripts : public testing::TestWithParam<const char*> {};

TEST_P(StageScripts, ComputeAndSendWhatThePlanCounts) {
  const RunSpec run = scripted_run(GetParam());
  const MachineSpec machine = scripted_machine();
  const RunData data(run);
  const WorldScript script = world_script(run, machine, KernelPrices(machine), data);
  const std::vector<Plan> plans = plan_stages(run, data);
  ASSERT_EQ(script.stages.size(), plans.size());
  for (std::size_t s = 0; s < plans.size(); ++s) {
    std::int64_t flops = 0;
    std::array<std::int64_t, kMeshAxes.size()> sent{};
    int steps = 0;
    const auto add = [&](const StagePiece& piece) {
      if (piece.kind != StagePiece::Kind::start) return;
      const StageMessage& m = script.messages[static_cast<std::size_t>(piece.index)];
      if (m.op != CommOp::recv && !m.number) sent[static_cast<std::size_t>(m.group.axis)] += m.sent;
    };
    for (const StagePiece& piece : script.stages[s].pieces) {
      steps += piece.kind == StagePiece::Kind::step_begins;
      if (steps < 2) continue;
      add(piece);
      if (piece.kind != StagePiece::Kind::phase) continue;
      const PhaseScript& phase = script.phases[static_cast<std::size_t>(piece.index)];
      flops += phase.work.matmul_flops;
      for (const StagePiece& inner : phase.pieces) add(inner);
    }
    EXPECT_EQ(flops, plans[s].executed.matmul_flops) << "stage " << s;
    for (const MeshAxis axis : kMeshAxes)
      EXPECT_EQ(sent[static_cast<std::size_t>(axis)], plans[s].messages.total(axis).bytes_sent)
          << "stage " << s << " " << name_of(axis);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, StageScripts,
                         testing::Values("dp=4,micro=4", "dp=8,zero=1,micro=2", "dp=4,zero=2,micro=2",
                                         "dp=8,zero=3,micro=2", "tp=4,micro=2", "tp=4,sp=off", "cp=2,micro=4",
                                         "cp=2,cp_kind=ulysses", "pp=4,micro=8", "pp=2,micro=8,schedule=zb-h1",
                                         "pp=2,micro=8,schedule=zb-v", "pp=2,micro=8,schedule=interleaved",
                                         "dp=2,pp=2,cp=2,tp=2,micro=8,zero=3", "dp=4,pp=4,tp=2,micro=4,zero=1"));

// A step of one device is the sum of its kernels' prices, launches and all: nothing is counted twice or left out.
TEST(StepPrediction, OfOneDeviceIsTheSumOfItsKernels) {
  const RunSpec run = scripted_run("dp=1,micro=4");
  MachineSpec machine = scripted_machine();
  machine.nodes = machine.devices_per_node = 1;
  machine.step = 0;
  const RunData data(run);
  const std::vector<Plan> plans = plan_stages(run, data);
  const StepPrediction predicted = predict_step(run, machine, data, plans);
  EXPECT_NEAR(predicted.computed, predicted.step_seconds, 1e-9);
  // With prices that are launches alone, a step takes its calls.
  machine.peaks.bf16 = machine.peaks.fp32 = machine.peaks.fp64 = 1e30;
  machine.copies = {{.size = 1, .rate = 1e30}};
  machine.launch = 1e-3;
  EXPECT_NEAR(predict_step(run, machine, data, plans).step_seconds,
              1e-3 * static_cast<double>(plans.front().executed.calls), 1e-6);
}

TEST(StepPrediction, SlowerLinksFewerNodesAndLongerLatenciesNeverMakeItFaster) {
  const RunSpec run = scripted_run("dp=4,pp=2,tp=4,micro=4,zero=1");
  const RunData data(run);
  const std::vector<Plan> plans = plan_stages(run, data);
  const MachineSpec machine = scripted_machine();
  const double asked = predict_step(run, machine, data, plans).step_seconds;
  const auto with = [&](auto change) {
    MachineSpec other = machine;
    change(other);
    return predict_step(run, other, data, plans).step_seconds;
  };
  EXPECT_GT(with([](MachineSpec& m) { m.inter_node.bandwidth /= 50; }), asked);
  EXPECT_GT(with([](MachineSpec& m) { m.intra_node.bandwidth /= 50; }), asked);
  EXPECT_GT(with([](MachineSpec& m) { m.inter_node.latency *= 100; }), asked);
  EXPECT_GT(with([](MachineSpec& m) { m.devices_per_node = 2; }), asked);  // tp crosses nodes
  EXPECT_GT(with([](MachineSpec& m) { m.peaks.bf16 /= 2; }), asked);
}

}  // namespace
}  // namespace lockstep::tests
