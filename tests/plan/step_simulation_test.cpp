// Slow ranks: grouping replicas that are alike changes nothing, and one slow replica holds all of them up.
#include "plan/step_simulation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "plan/kernel_prices.h"
#include "spec/layout/layout_toml.h"
#include "spec/model/presets.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

constexpr std::size_t kDpAxis = static_cast<std::size_t>(MeshAxis::dp);

RunSpec simulated_run(const std::string& layout, std::int64_t batch) {
  RunSpec spec;
  spec.model = *preset("llama-1m");
  spec.data.synthetic = SyntheticSpec{};
  spec.data.seq = 64;
  spec.data.eval_share = 0;
  spec.train.global_batch = batch;
  spec.train.save_last = spec.train.async_save = false;
  spec.precision.compute = Precision::bf16;
  spec.run.threads = 1;
  spec.layout = parse_layout(layout);
  validate(spec, [](std::string_view, std::string_view key) { return std::string(key); });
  return spec;
}

WorldScript script_of(const RunSpec& spec, const MachineSpec& machine) {
  const RunData data(spec);
  return world_script(spec, machine, KernelPrices(machine), data);
}

TEST(SlowRanks, AreTheStatedShareAndAFunctionOfTheSeed) {
  const std::vector<SlowShare> shares{{.share = 0.01, .factor = 1.5}, {.share = 0.002, .factor = 3}};
  const std::vector<SlowRank> slow = draw_slow_ranks(10'000, shares, 7);
  ASSERT_EQ(slow.size(), 120u);
  std::set<std::int64_t> ranks;
  int slowest = 0;
  for (const SlowRank& s : slow) {
    ranks.insert(s.rank);
    slowest += s.factor == 3;
  }
  EXPECT_EQ(ranks.size(), 120u);
  EXPECT_EQ(slowest, 20);
  EXPECT_GT(*ranks.rbegin(), 9000);
  EXPECT_LT(*ranks.begin(), 1000);
  const auto ranks_of = [&](std::uint64_t seed) {
    std::vector<std::int64_t> drawn;
    for (const SlowRank& s : draw_slow_ranks(10'000, shares, seed)) drawn.push_back(s.rank);
    return drawn;
  };
  EXPECT_EQ(ranks_of(7), ranks_of(7));
  EXPECT_NE(ranks_of(7), ranks_of(8));
  EXPECT_EQ(draw_slow_ranks(8, {{.share = 0.01, .factor = 2}}, 1).size(), 1u);
  EXPECT_EQ(draw_slow_ranks(8, {{.share = 1, .factor = 2}}, 1).size(), 8u);
}

TEST(SlowRanks, ReplicasWhoseStagesAreSlowAlikeAreOneKind) {
  const LayoutSpec layout = parse_layout("dp=4,pp=2,tp=2,micro=2");
  // Ranks of replica d, stage p and tp rank t: 4 d + 2 p + t.
  const auto kinds = replica_kinds(layout, {{.rank = 4, .factor = 2},
                                            {.rank = 6, .factor = 1.5},
                                            {.rank = 13, .factor = 2},
                                            {.rank = 14, .factor = 1.5},
                                            {.rank = 15, .factor = 1.25}});
  ASSERT_EQ(kinds.size(), 2u);
  EXPECT_EQ(kinds[0].slowness, (std::vector<double>{1, 1}));
  EXPECT_EQ(kinds[0].members, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(kinds[1].slowness, (std::vector<double>{2, 1.5}));
  EXPECT_EQ(kinds[1].members, (std::vector<std::int64_t>{1, 3}));
}

// Work of 2 s and a reduction of 1 s: 3 s. With one of four ranks three times as slow, 6 + 1; the others wait 4 s more.
TEST(StepSimulation, AStepIsAsSlowAsItsSlowestReplica) {
  MachineSpec machine;
  machine.devices_per_node = 4;
  machine.intra_node = {.bandwidth = 1e9, .latency = 0};
  machine.copies = {{.size = 1, .rate = 1e9}};
  StageMessage reduction;
  reduction.op = CommOp::all_reduce;
  reduction.algorithm = Algorithm::ring;
  reduction.group = {.axis = MeshAxis::dp, .ranks = 4, .nodes = 1, .on_node = 4};
  reduction.sent = 1'000'000'000;
  using Kind = StagePiece::Kind;
  StageScript stage;
  for (int step = 0; step < 2; ++step)
    for (const StagePiece& piece :
         {StagePiece{.kind = Kind::step_begins}, StagePiece{.kind = Kind::work, .seconds = 2},
          StagePiece{.kind = Kind::start, .index = 0, .number = step}, StagePiece{.kind = Kind::wait, .number = step},
          StagePiece{.kind = Kind::step_ends}})
      stage.pieces.push_back(piece);
  stage.messages = 2;
  const WorldScript script{.messages = {reduction}, .phases = {}, .stages = {stage}};
  const StepSimulation s =
      simulate_steps(script, parse_layout("dp=4"), machine, {.slow = {{.share = 0.25, .factor = 3}}});
  EXPECT_DOUBLE_EQ(s.plain_seconds, 3);
  EXPECT_DOUBLE_EQ(s.step_seconds, 7);
  EXPECT_DOUBLE_EQ(s.plain_waited[kDpAxis], 1);
  EXPECT_DOUBLE_EQ(s.waited[kDpAxis], (3 * 5 + 1) / 4.0);
  EXPECT_DOUBLE_EQ(s.computed, (3 * 2 + 6) / 4.0);
  EXPECT_DOUBLE_EQ(s.stages[0].alone_seconds, 7);
  EXPECT_EQ(s.kinds, 2);
  EXPECT_EQ(s.simulated, 2);
  ASSERT_EQ(s.slow.size(), 1u);
  EXPECT_EQ(s.slowest, s.slow[0].rank);
}

// The same by every replica of its own, none grouped.
TEST(StepSimulation, GroupingReplicasThatAreAlikeChangesNothing) {
  const MachineSpec machine = find_machine("h100-sxm");
  std::int64_t saved = 0;
  for (const auto& [layout, batch] : {std::pair{"dp=12", 12},
                                      {"dp=12,zero=3,micro=2", 24},
                                      {"dp=9,pp=2,micro=4", 36},
                                      {"dp=6,tp=2,zero=1", 12},
                                      {"dp=8,pp=2,tp=2,micro=2,schedule=zb-h1", 16},
                                      {"dp=4,pp=4,cp=2,micro=4", 16}}) {
    SCOPED_TRACE(layout);
    const RunSpec spec = simulated_run(layout, batch);
    const WorldScript script = script_of(spec, machine);
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SimulationSpec asked{.slow = {{.share = 0.1, .factor = 1.5}, {.share = 0.05, .factor = 2.5}}, .seed = seed};
      const StepSimulation grouped = simulate_steps(script, spec.layout, machine, asked);
      asked.grouped = false;
      const StepSimulation each = simulate_steps(script, spec.layout, machine, asked);
      EXPECT_EQ(each.simulated, spec.layout.dp);
      EXPECT_EQ(grouped.simulated, grouped.kinds);
      saved += each.simulated - grouped.simulated;
      EXPECT_NEAR(grouped.step_seconds, each.step_seconds, 1e-13 * each.step_seconds);
      EXPECT_NEAR(grouped.computed, each.computed, 1e-12 * each.computed);
      for (std::size_t a = 0; a < kMeshAxes.size(); ++a)
        EXPECT_NEAR(grouped.waited[a], each.waited[a], 1e-12 * each.step_seconds) << a;
      EXPECT_GT(grouped.slowdown(), 1);
    }
  }
  EXPECT_GT(saved, 60);  // replicas that were like another
}

TEST(StepSimulation, WithoutSlowRanksItIsThePlainStep) {
  const MachineSpec machine = find_machine("a100-sxm");
  const RunSpec spec = simulated_run("dp=4,pp=2,micro=4", 16);
  const StepSimulation s = simulate_steps(script_of(spec, machine), spec.layout, machine, {});
  EXPECT_EQ(s.step_seconds, s.plain_seconds);
  EXPECT_EQ(s.kinds, 1);
  EXPECT_TRUE(s.slow.empty());
}

// Of 64 steps the mean of the longest of replicas is longer than the step of all alike, more so with more replicas.
TEST(StepSimulation, JitterCostsMoreTheMoreReplicasThereAre) {
  const MachineSpec machine = find_machine("h100-sxm");
  double before = 1;
  for (const int dp : {1, 8, 64}) {
    const RunSpec spec = simulated_run(fmt::format("dp={}", dp), dp);
    const StepSimulation s =
        simulate_steps(script_of(spec, machine), spec.layout, machine, {.jitter = 0.2, .steps = 16});
    EXPECT_EQ(s.simulated, dp);
    EXPECT_LE(s.shortest, s.step_seconds);
    EXPECT_GE(s.longest, s.step_seconds);
    if (dp > 1) {
      EXPECT_GT(s.slowdown(), before);
      before = s.slowdown();
    }
  }
  EXPECT_LT(before, 1.5);
}

// The least slow kinds are left out, and the step stays as long.
TEST(StepSimulation, APartOfTheReplicasStandsForAllWhereThereAreTooMany) {
  const MachineSpec machine = find_machine("h100-sxm");
  const RunSpec spec = simulated_run("dp=16,pp=2,micro=2", 32);
  const WorldScript script = script_of(spec, machine);
  SimulationSpec asked{.slow = {{.share = 0.1, .factor = 1.5}, {.share = 0.1, .factor = 2}}, .seed = 3};
  const StepSimulation all = simulate_steps(script, spec.layout, machine, asked);
  std::int64_t pieces = 0;
  for (const StageScript& stage : script.stages) pieces += std::ssize(stage.pieces);
  asked.most_pieces = 3 * pieces;
  const StepSimulation part = simulate_steps(script, spec.layout, machine, asked);
  ASSERT_GT(all.simulated, 3);
  EXPECT_EQ(part.simulated, 3);
  EXPECT_EQ(part.kinds, all.kinds);
  EXPECT_NEAR(part.step_seconds, all.step_seconds, 0.02 * all.step_seconds);
}

}  // namespace
}  // namespace lockstep::tests
