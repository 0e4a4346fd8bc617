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

// The second step of each stage, then of each server: products as planned, and `sent` bytes by axis.
template <class Sent>
void expect_script_as_planned(const WorldScript& script, const std::vector<Plan>& plans, const Sent& planned) {
  std::vector<StageScript> all = script.stages;
  all.insert(all.end(), script.servers.begin(), script.servers.end());
  ASSERT_EQ(all.size(), plans.size());
  for (std::size_t s = 0; s < plans.size(); ++s) {
    std::int64_t flops = 0;
    std::array<std::int64_t, kMeshAxes.size()> sent{};
    int steps = 0;
    const auto add = [&](const StagePiece& piece) {
      if (piece.kind != StagePiece::Kind::start) return;
      const StageMessage& m = script.messages[static_cast<std::size_t>(piece.index)];
      if (m.op != CommOp::recv && !m.number) sent[static_cast<std::size_t>(m.group.axis)] += m.sent;
    };
    for (const StagePiece& piece : all[s].pieces) {
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
      EXPECT_EQ(sent[static_cast<std::size_t>(axis)], planned(plans[s], axis)) << "stage " << s << " " << name_of(axis);
  }
}

class StageScripts : public testing::TestWithParam<const char*> {};

TEST_P(StageScripts, ComputeAndSendWhatThePlanCounts) {
  const RunSpec run = scripted_run(GetParam());
  const MachineSpec machine = scripted_machine();
  const RunData data(run);
  const WorldScript script = world_script(run, machine, KernelPrices(machine), data);
  const std::vector<Plan> plans = plan_stages(run, data);
  expect_script_as_planned(script, plans,
                           [](const Plan& plan, MeshAxis axis) { return plan.messages.total(axis).bytes_sent; });
}

INSTANTIATE_TEST_SUITE_P(Layouts, StageScripts,
                         testing::Values("dp=4,micro=4", "dp=8,zero=1,micro=2", "dp=4,zero=2,micro=2",
                                         "dp=8,zero=3,micro=2", "tp=4,micro=2", "tp=4,sp=off", "cp=2,micro=4",
                                         "cp=2,cp_kind=ulysses", "pp=4,micro=8", "pp=2,micro=8,schedule=zb-h1",
                                         "pp=2,micro=8,schedule=zb-v", "pp=2,micro=8,schedule=interleaved",
                                         "dp=2,pp=2,cp=2,tp=2,micro=8,zero=3", "dp=4,pp=4,tp=2,micro=4,zero=1",
                                         "dp=4,dp_kind=server,servers=2", "dp=3,dp_kind=server,servers=3,micro=2",
                                         "dp=2,pp=2,cp=2,tp=2,micro=4,dp_kind=server,servers=8"));

class CompressedScripts : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(CompressedScripts, SendWhatThePlanCounts) {
  RunSpec run = scripted_run(GetParam().first);
  run.sync.compress = Compression::parse(GetParam().second).value();
  const RunData data(run);
  const MachineSpec machine = scripted_machine();
  const WorldScript script = world_script(run, machine, KernelPrices(machine), data);
  RunSpec full = run;
  full.sync = {};
  const std::vector<Plan> plans = plan_stages(run, data);
  EXPECT_LT(plans[0].messages.total().bytes_sent, plan_stages(full, data)[0].messages.total().bytes_sent);
  expect_script_as_planned(script, plans,
                           [](const Plan& plan, MeshAxis axis) { return plan.messages.total(axis).bytes_sent; });
}

INSTANTIATE_TEST_SUITE_P(Forms, CompressedScripts,
                         testing::Values(std::pair{"dp=4,micro=2", "int8"}, std::pair{"dp=3,micro=2", "onebit"},
                                         std::pair{"dp=4,zero=2,micro=2", "bf16"},
                                         std::pair{"dp=4,pp=2,micro=2", "topk:0.01"}));

class LocalStepScripts : public testing::TestWithParam<const char*> {};

// The script of a step that synchronizes has the usual step's messages and the synchronization's.
TEST_P(LocalStepScripts, SendWhatThePlanCountsOfEitherKindOfStep) {
  RunSpec run = scripted_run(GetParam());
  run.sync.kind = run.layout.zero > 0 ? SyncKind::mixed : SyncKind::partial;
  run.sync.every = 3;
  run.sync.outer = OuterStep::nesterov;
  run.sync.group = 2;
  const RunData data(run);
  const MachineSpec machine = scripted_machine();
  const KernelPrices prices(machine);
  const std::vector<Plan> plans = plan_stages(run, data);
  ASSERT_GT(plans[0].synchronization.total().bytes_sent, 0);
  expect_script_as_planned(world_script(run, machine, prices, data), plans,
                           [](const Plan& plan, MeshAxis axis) { return plan.messages.total(axis).bytes_sent; });
  expect_script_as_planned(world_script(run, machine, prices, data, StepKind::synchronizing), plans,
                           [](const Plan& plan, MeshAxis axis) {
                             return plan.messages.total(axis).bytes_sent + plan.synchronization.total(axis).bytes_sent;
                           });
}

INSTANTIATE_TEST_SUITE_P(Layouts, LocalStepScripts,
                         testing::Values("dp=4,micro=2", "dp=2,pp=2,tp=2,micro=4", "dp=4,zero=1,shard=2,micro=2"));

// A slow network, on which messages of dp are most of a step.
MachineSpec slow_machine(int nodes) {
  MachineSpec machine = scripted_machine();
  machine.nodes = nodes;
  machine.devices_per_node = 1;
  machine.inter_node = machine.intra_node = {.bandwidth = 1e8, .latency = 1e-3};
  return machine;
}

TEST(StepPrediction, OfLocalStepsIsTheMeanOfThoseWithoutAndWithASynchronization) {
  RunSpec run = scripted_run("dp=4,micro=2");
  const MachineSpec machine = slow_machine(4);
  const RunData data(run);
  const auto predicted = [&] { return predict_step(run, machine, data, plan_stages(run, data)); };
  const StepPrediction full = predicted();
  run.sync.kind = SyncKind::partial;
  run.sync.every = 16;
  const StepPrediction local = predicted();
  ASSERT_TRUE(local.local);
  EXPECT_EQ(local.local->every, 16);
  EXPECT_DOUBLE_EQ(local.step_seconds, (15 * local.local->local + local.local->synchronizing) / 16);
  // The masters in fp32, both ways, as ddp's gradients, after the step and not beside it.
  const double sum = static_cast<double>(plan_stages(run, data)[0].synchronization.total().bytes_sent) / 1e8;
  EXPECT_GT(local.local->synchronizing, local.local->local + sum);
  EXPECT_LT(local.local->local, 0.1 * full.step_seconds);
  EXPECT_NEAR(local.tokens_per_second * local.step_seconds, full.tokens_per_second * full.step_seconds, 1e-6);
  EXPECT_NEAR(local.exposed_seconds(), local.step_seconds - local.computed, 1e-6 * local.step_seconds + 1e-4);
  EXPECT_FALSE(full.local);
}

// The link of a server carries 2·workers·Ψ/servers elements in a step, one way each, and is the slowest.
TEST(StepPrediction, OfParameterServersIsTheirLinksTime) {
  const auto seconds = [&](const std::string& layout, int ranks) {
    const RunSpec run = scripted_run(layout);
    const RunData data(run);
    MachineSpec machine = slow_machine(ranks);
    machine.inter_node.latency = 1e-6;
    return predict_step(run, machine, data, plan_stages(run, data));
  };
  const RunSpec run = scripted_run("dp=4,dp_kind=server,servers=1");
  const double stored = static_cast<double>(plan_stages(run).front().stored);
  const double gradients = 4 * stored / 1e8, weights = 2 * stored / 1e8;  // of one worker: fp32, and bf16
  const StepPrediction one = seconds("dp=4,dp_kind=server,servers=1", 5);
  const StepPrediction two = seconds("dp=4,dp_kind=server,servers=2", 6);
  const StepPrediction eight = seconds("dp=4,dp_kind=server,servers=8", 12);
  const auto expect_time = [](const StepPrediction& predicted, double least) {
    EXPECT_GT(predicted.step_seconds, least);
    EXPECT_LT(predicted.step_seconds, 1.2 * least) << "beside it: work";
  };
  expect_time(one, 4 * (gradients + weights));
  expect_time(two, 2 * (gradients + weights));
  expect_time(eight, gradients + weights);  // with more servers than workers, a worker's own link is the slowest
  ASSERT_TRUE(one.served && two.served);
  EXPECT_GT(*one.served, *two.served) << "half of the state each";
}

// What a machine's file says of codes is the price of runs that compress, and of no others.
TEST(StepPrediction, PricesCodesByTheirForm) {
  RunSpec run = scripted_run("dp=4,micro=2");
  const MachineSpec machine = slow_machine(4);
  const RunData data(run);
  const auto computed = [&](const MachineSpec& on) {
    return predict_step(run, on, data, plan_stages(run, data)).computed;
  };
  MachineSpec slow = machine;
  slow.kernels["code_int8"] = 1e-3;
  EXPECT_DOUBLE_EQ(computed(slow), computed(machine));
  run.sync.compress = Compression::parse("onebit").value();
  EXPECT_DOUBLE_EQ(computed(slow), computed(machine));
  run.sync.compress = Compression::parse("int8").value();
  EXPECT_GT(computed(slow), 2 * computed(machine));
}

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
