#include "support/levers.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/error.h"
#include "comm/threads/run_ranks.h"
#include "plan/plan.h"
#include "spec/layout/layout_toml.h"
#include "support/program.h"
#include "support/tiny_specs.h"
#include "train/training_run.h"

namespace lockstep::tests {

namespace {

NamedLever recompute_lever(Recompute level, std::int64_t blocks = 0, std::int64_t every = 1) {
  std::string name = fmt::format("recompute {}", name_of(level));
  if (blocks > 0) name += fmt::format(" of {}", blocks);
  if (every > 1) name += fmt::format(", every {}", every);
  return {name, [=](RunSpec& run) {
            run.memory.recompute = level;
            run.memory.recompute_blocks = blocks;
            run.memory.recompute_every = every;
          }};
}

NamedLever offload_lever(Offload where, double share, std::int64_t window) {
  return {fmt::format("offload to {}, share {}, window {}", name_of(where), share, window), [=](RunSpec& run) {
            run.memory.offload_optimizer = where;
            run.memory.offload_share = share;
            run.memory.offload_window = window;
          }};
}

NamedLever zero_lever(std::int64_t zero, const std::string& more = "", std::int64_t gathered = 0) {
  return {fmt::format("zero {}{}", zero, more), [=](RunSpec& run) {
            run.layout.zero = zero;
            run.layout.grad_sync = LayoutSpec::usual_sync(zero);
            run.memory.gathered = gathered;
            if (more == " kept") run.layout.reshard = Reshard::never;
          }};
}

}  // namespace

std::vector<LeverKind> kinds_of_levers() {
  const auto set = [](auto field, auto value) { return [=](RunSpec& run) { run.precision.*field = value; }; };
  return {
      {recompute_lever(Recompute::elementwise),
       recompute_lever(Recompute::projections),
       recompute_lever(Recompute::projections, 2),
       recompute_lever(Recompute::full),
       recompute_lever(Recompute::full, 0, 2),
       {"recompute full by stage",
        [](RunSpec& run) {
          run.memory.recompute = Recompute::full;
          for (std::int64_t stage = 0; stage < run.layout.pp; ++stage)
            run.memory.recompute_stages.counts.push_back(run.layout.pp - 1 - stage);
        }}},
      {offload_lever(Offload::disk, 1, 64), offload_lever(Offload::disk, 0.4, 64), offload_lever(Offload::disk, 1, 1),
       offload_lever(Offload::host, 1, 64), offload_lever(Offload::host, 0.4, 1)},
      {zero_lever(1), zero_lever(2), zero_lever(3), zero_lever(3, " gathered", 1), zero_lever(3, " kept")},
      {{"twice the micro-batches", [](RunSpec& run) { run.layout.micro *= 2; }},
       {"three times the micro-batches", [](RunSpec& run) { run.layout.micro *= 3; }}},
      {{"bf16 gradients",
        [](RunSpec& run) {
          run.precision.compute = Precision::bf16;
          run.precision.gradients = StateType::bf16;
        }}},
      {{"bf16 moments", set(&PrecisionSpec::moments, StateType::bf16)}},
      {{"bf16 masters",
        [](RunSpec& run) {
          run.precision.compute = Precision::bf16;
          run.precision.master = StateType::bf16;
        }}},
      {{"bf16 weights", set(&PrecisionSpec::compute, Precision::bf16)}},
      {{"saves that are waited for", [](RunSpec& run) { run.train.async_save = false; }}},
  };
}

bool could_be_run(RunSpec spec) {
  if (spec.memory.offload_optimizer == Offload::host) spec.memory.offload_optimizer = Offload::disk;
  try {
    validate(spec, [](std::string_view, std::string_view) { return std::string(); });
    return true;
  } catch (const UserError&) {
    return false;
  }
}

RunSpec run_without_levers(const std::string& layout) {
  RunSpec run;
  const std::vector<NamedSpec> specs = cut_specs();
  const auto even = std::ranges::find_if(specs, [](const NamedSpec& s) { return s.spec.kv_heads % 2 == 0; });
  run.model = even->spec;
  run.model.layers = 4;
  run.data.synthetic = SyntheticSpec{.vocabulary = run.model.vocabulary, .order = 1};
  run.data.seq = 16;
  run.train.global_batch = 24;
  run.train.eval_every = 1;
  run.train.eval_batches = 1;
  run.layout = parse_layout(layout);
  run.run.threads = 1;
  return run;
}

std::vector<std::string> layouts_for_levers() {
  return {"micro=2",
          "dp=2,micro=2",
          "dp=3",
          "dp=4,micro=2",
          "pp=2,micro=4",
          "pp=2,micro=4,schedule=zb-h1",
          "tp=2,micro=2",
          "tp=2,sp=off",
          "cp=2,micro=2",
          "dp=2,pp=2,micro=2",
          "dp=2,tp=2,micro=2",
          "dp=2,cp=2,micro=2",
          "pp=2,tp=2,micro=4",
          "cp=2,tp=2,micro=2",
          "dp=2,pp=2,tp=2,micro=2",
          "dp=2,pp=2,cp=2,micro=2"};
}

std::vector<LeverCombination> lever_combinations(std::size_t count, unsigned seed) {
  const std::vector<std::string> layouts = layouts_for_levers();
  const std::vector<LeverKind> kinds = kinds_of_levers();
  std::mt19937 random(seed);
  std::set<std::string> seen;
  std::vector<LeverCombination> all;
  for (std::size_t turn = 0; all.size() < count && turn < 100 * count; ++turn) {
    const std::string& layout = layouts[turn % layouts.size()];
    LeverCombination one{.words = layout, .run = run_without_levers(layout), .levers = {}};
    for (const LeverKind& kind : kinds)
      if (random() % 2 == 0) {
        const NamedLever& lever = kind[random() % kind.size()];
        lever.use(one.run);
        one.levers.push_back(lever.name);
      }
    one.words += fmt::format(": {}", fmt::join(one.levers, "; "));
    if (one.levers.size() < 2 || !could_be_run(one.run) || !seen.insert(one.words).second) continue;
    all.push_back(std::move(one));
  }
  return all;
}

void expect_costs_as_planned(const RunSpec& asked, const std::string& words) {
  const TemporaryFolder folder;
  RunSpec spec = asked;
  spec.run.out = folder.path();
  const RunData data(spec);
  std::vector<Plan> plans;
  for (int rank = 0; rank < spec.layout.ranks(); ++rank) plans.push_back(plan_run(spec, rank, &data));
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> ranks) {
    const std::string who = fmt::format("{}, rank {}", words, ranks->rank());
    const Plan& plan = plans[static_cast<std::size_t>(ranks->rank())];
    TrainingRun run(spec, Device::cpu, folder.path() / "checkpoints",
                    {.ranks = ranks.get(), .threads = 1, .data = &data});
    run.init_weights();
    run.step(0, 1e-3);
    const std::int64_t settled = run.ledger().allocations();
    run.step(spec.train.global_batch, 1e-3);
    EXPECT_EQ(run.ledger().allocations(), settled) << who << ": a steady step takes a buffer";
    run.evaluate();
    run.save({.step = 2, .updates = 2, .run_file = {}});
    run.wait_for_save();
    EXPECT_EQ(run.ledger().rows(), plan.rows) << who;
    EXPECT_EQ(run.ledger().peak(), plan.peak) << who;
    EXPECT_EQ(run.host_ledger().rows(), plan.host_rows) << who << ": on the host";
    EXPECT_EQ(run.host_ledger().peak(), plan.host) << who << ": on the host";
    EXPECT_EQ(run.disk_ledger().rows(), plan.disk_rows) << who << ": on the disk";
    EXPECT_EQ(run.disk_ledger().peak(), plan.disk) << who << ": on the disk";
    EXPECT_EQ(run.replica().traffic().from_device, 2 * plan.moved.from_device) << who << ": moved in two steps";
    run.replica().settle();
  });
}

}  // namespace lockstep::tests
