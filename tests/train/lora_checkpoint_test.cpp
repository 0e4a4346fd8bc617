// Checkpoints of LoRA hold adapters and the fingerprint of their base; resumed in any layout, and merged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_model.h"
#include "checkpoint/lora_base.h"
#include "comm/threads/run_ranks.h"
#include "spec/model/projections.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/program.h"
#include "support/resumed_runs.h"
#include "support/serial_lora.h"
#include "support/tiny_specs.h"
#include "train/host_values.h"
#include "train/merged_lora.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

RunSpec run_of_base(const ModelSpec& model, const LayoutSpec& layout = {}, Precision precision = Precision::fp64) {
  RunSpec run = resumed_run(model, layout);
  run.data.seq = 12;
  run.precision.compute = precision;
  return run;
}

RunSpec run_of_adapters(const ModelSpec& model, const fs::path& base, const LayoutSpec& layout = {},
                        Precision precision = Precision::fp64) {
  RunSpec run = run_of_base(model, layout, precision);
  run.model_from = base.string();
  run.lora = {.rank = 3, .alpha = 4};
  run.optimizer.learning_rate = 0.02;
  return run;
}

class LoraCheckpointOf : public ::testing::TestWithParam<NamedSpec> {
 protected:
  void SetUp() override { train_all(run_of_base(model(), {.dp = 2, .zero = 1}), base_.path()); }
  const ModelSpec& model() const { return GetParam().spec; }
  fs::path base() const { return base_.path() / step_folder_name(kAllSteps); }
  TemporaryFolder base_;
};

TEST_P(LoraCheckpointOf, IsResumedInEveryLayout) {
  const std::vector<LayoutSpec> layouts{{},
                                        {.dp = 2, .micro = 2, .zero = 3},
                                        {.pp = 2, .schedule = ScheduleKind::zb_h1, .micro = 4},
                                        {.tp = 3},
                                        {.dp = 2, .pp = 2, .cp = 2, .zero = 1}};
  for (const LayoutSpec& from : layouts) {
    if (!heads_divide(model().heads, model().kv_heads, from.tp)) continue;
    const TemporaryFolder folder;
    const TrainedState stayed = train_all(run_of_adapters(model(), base(), from), folder.path());
    const fs::path saved = folder.path() / step_folder_name(kSavedStep);
    for (const LayoutSpec& to : layouts) {
      if (!heads_divide(model().heads, model().kv_heads, to.tp)) continue;
      const TemporaryFolder unused;
      const TrainedState resumed = train_all(run_of_adapters(model(), base(), to), unused.path(), saved);
      const std::string what = to_text(from) + " to " + to_text(to);
      if (from == to)
        EXPECT_TRUE(resumed == stayed) << what;
      else
        EXPECT_LE(distance(stayed, resumed), 1e-11) << what;
    }
  }
}

TEST_P(LoraCheckpointOf, HoldsAdaptersAndTheirStateAlone) {
  const TemporaryFolder folder;
  train_all(run_of_adapters(model(), base_.path(), {.dp = 2, .zero = 1}), folder.path());
  const Checkpoint checkpoint = open_checkpoint(folder.path() / step_folder_name(kAllSteps));
  std::int64_t elements = 0;
  for (const ManifestTensor& t : checkpoint.manifest().tensors) {
    EXPECT_THAT(t.name, ::testing::MatchesRegex("base_model\\.model\\..*\\.lora_[AB]\\.weight"));
    EXPECT_THAT(t.part, ::testing::AnyOf("weight", "m", "v"));
    elements += LogicalTensor{t.name, t.shape}.elements();
  }
  EXPECT_EQ(elements, 3 * lora_parameters(model(), {.rank = 3}));
  const RunSpec saved = run_of(checkpoint);
  EXPECT_EQ(saved.model_from, base().string()) << "the one that it began with, not the newest";
  EXPECT_EQ(saved.lora.base.size(), 16U);
}

// The fingerprint does not depend on how a checkpoint is sharded, and any changed element changes it.
TEST_P(LoraCheckpointOf, IsNotResumedBesideAnotherBase) {
  const TemporaryFolder folder, resaved, other;
  train_all(run_of_adapters(model(), base()), folder.path());
  const fs::path saved = folder.path() / step_folder_name(kSavedStep);
  resave(run_of_base(model(), {.dp = 2, .zero = 3}), resaved.path(), base());
  train_all(run_of_adapters(model(), resaved.path() / step_folder_name(kAllSteps)), other.path(), saved);

  const TemporaryFolder changed;
  RunSpec unlike = run_of_base(model());
  unlike.train.seed = 99;
  train_all(unlike, changed.path());
  const auto resumed = [&] {
    train_all(run_of_adapters(model(), changed.path() / step_folder_name(kAllSteps)), other.path(), saved);
  };
  try {
    resumed();
    FAIL() << "another base";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("trained beside another base"));
    EXPECT_THAT(error.what(), HasSubstr(base().string()));
  }
}

TEST_P(LoraCheckpointOf, IsNoBaseItself) {
  const TemporaryFolder folder, unused;
  train_all(run_of_adapters(model(), base()), folder.path());
  try {
    train_all(run_of_adapters(model(), folder.path()), unused.path());
    FAIL() << "adapters of adapters";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds adapters of [lora] alone"));
  }
}

// Frozen weights after training, as pieces of all ranks.
PlainTensors frozen_after_training(const RunSpec& spec, const fs::path& folder) {
  PlainTensors all;
  std::mutex mutex;
  run_ranks(static_cast<int>(spec.layout.ranks()), [&](std::unique_ptr<Communicator> group) {
    TrainingRun run(spec, Device::cpu, folder, {.ranks = group->size() > 1 ? group.get() : nullptr});
    run.init_weights();
    for (int step = 0; step < 3; ++step) run.step(step * spec.train.global_batch, 0.05);
    run.replica().settle();
    const std::lock_guard lock(mutex);
    for (const StateTensor& t : run.replica().frozen()) {
      std::vector<double>& whole = all[t.tensor.name];
      whole.resize(static_cast<std::size_t>(t.tensor.elements()), std::nan(""));
      const std::vector<double> here = to_doubles(t.live, run.stream());
      for (std::int64_t at = 0; at < std::ssize(here); at += t.range.row)
        std::copy_n(here.begin() + at, t.range.row, whole.begin() + t.range.at(at));
    }
  });
  return all;
}

TEST_P(LoraCheckpointOf, LeavesTheBaseUnchangedToTheBit) {
  CpuDevice cpu;
  const Checkpoint source = open_checkpoint(base());
  for (const LayoutSpec& layout : {LayoutSpec{}, {.dp = 2, .zero = 3}, {.pp = 2, .tp = 3, .micro = 2}}) {
    if (!heads_divide(model().heads, model().kv_heads, layout.tp)) continue;
    RunSpec run = run_of_adapters(model(), base(), layout);
    run.train.save_last = false, run.train.save_every = 0;
    const TemporaryFolder unused;
    const PlainTensors after = frozen_after_training(run, unused.path());
    std::size_t tensors = 0;
    for (const ManifestTensor& t : source.manifest().tensors) {
      if (t.part != kWeightPart) continue;
      ++tensors;
      const LogicalTensor logical{t.name, t.shape};
      Buffer room = cpu.memory().allocate(logical.elements() * 8, Tag::workspace);
      const Tensor values = view(room, DType::f64, {logical.elements()});
      const StateTensor wanted{t.part, logical, flat_range(0, logical.elements()), values};
      source.load({&wanted, 1}, cpu.stream());
      EXPECT_EQ(after.at(t.name), to_doubles(values, cpu.stream())) << t.name << ", " << to_text(layout);
    }
    EXPECT_EQ(after.size(), tensors);
  }
}

// Logits of a run's replica on one batch.
std::vector<double> logits_of_replica(Replica& replica, const TokenBatch& batch, const ModelSpec& spec) {
  std::vector<double> logits(batch.tokens.size() * static_cast<std::size_t>(spec.vocabulary));
  replica.evaluate(batch.tokens, batch.targets, logits);
  return logits;
}

TEST_P(LoraCheckpointOf, MergedIsTheBaseAndTheProductOfTheAdaptersAndGivesTheSameLogits) {
  const TemporaryFolder folder, unused;
  const RunSpec spec = run_of_adapters(model(), base(), {.dp = 2, .zero = 1});
  const TrainedState trained = train_all(spec, folder.path());
  const Checkpoint checkpoint = open_checkpoint(folder.path() / step_folder_name(kAllSteps));
  CpuDevice cpu;
  const MergedLora merged(checkpoint, run_of(checkpoint), cpu.stream());

  // Plain loops.
  Replica::Options o{.spec = model(), .B = 16, .T = 12, .precision = Precision::fp64, .seed = 1};
  o.how.lora = spec.lora;
  PlainTensors adapters;
  for (const auto& [key, values] : trained)
    if (key.first == "weight") adapters[key.second] = values;
  const LoraBase source(spec, merged.tensors());
  const std::vector<std::string> projections = adapted_projections(o);
  EXPECT_EQ(std::ssize(projections), model().layers * std::ssize(projections_of(model())));
  std::size_t changed = 0;
  std::vector<Buffer> buffers;
  std::vector<ConstTensor> values;
  for (const LogicalTensor& t : merged.tensors()) {
    Buffer of_base, room;
    const auto before = to_doubles(source.values(t, cpu.memory(), of_base, cpu.stream()), cpu.stream());
    values.push_back(merged.values(t, cpu.memory(), room).reshape({t.elements()}));
    buffers.push_back(std::move(room));
    const auto now = to_doubles(values.back(), cpu.stream());
    const std::string projection = t.name.substr(0, t.name.rfind(".weight"));
    if (std::ranges::find(projections, projection) == projections.end()) {
      EXPECT_EQ(now, before) << t.name;
      continue;
    }
    ++changed;
    const std::vector<double> expected = plain_merge(o, projection, before, adapters);
    EXPECT_NE(now, before) << t.name;
    for (std::size_t i = 0; i < now.size(); ++i) ASSERT_NEAR(now[i], expected[i], 1e-14) << t.name;
  }
  EXPECT_EQ(changed, projections.size());

  // A plain model with the merged weights, and the model with adapters.
  const TokenBatch batch = random_batch(o, 3);
  Replica::Options whole = o;
  whole.how.lora = {};
  HostRun plain(whole);
  plain.replica->load(values);
  RunSpec still = spec;
  still.layout = {};
  TrainingRun run(still, Device::cpu, unused.path());
  resume(run, checkpoint, [](const std::string&) {});
  const std::vector<double> a = logits_of_replica(*plain.replica, batch, model());
  const std::vector<double> b = logits_of_replica(run.replica(), batch, model());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  EXPECT_LE(most, 1e-11);
}

INSTANTIATE_TEST_SUITE_P(Some, LoraCheckpointOf, ::testing::Values(tiny_specs()[0], tiny_specs()[1], tiny_specs()[6]),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::tests
