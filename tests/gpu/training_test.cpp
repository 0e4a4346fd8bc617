// Training on the GPU: the same bits in every run, the memory that meta said, and state that moves to the cpu and back.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "checkpoint/find_checkpoint.h"
#include "plan/plan.h"
#include "support/program.h"
#include "support/tiny_specs.h"
#include "tensor/cuda/device.h"
#include "tensor/make_stream.h"
#include "tensor/transfer.h"
#include "train/loop.h"
#include "train/resume.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

class TrainingOnTheGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
  TemporaryFolder folder_;
};

// Heads and lengths that reach the fused attention; small enough for a cpu beside it.
RunSpec small_run(RunDevice device, Precision precision) {
  RunSpec spec;
  spec.model = tiny_specs()[0].spec;
  spec.model.width = 128;
  spec.model.heads = 4;
  spec.model.kv_heads = 2;
  spec.model.head_width = 32;
  spec.model.ffn_width = 352;
  spec.model.layers = 4;
  spec.model.vocabulary = 257;
  spec.model.max_positions = 256;
  spec.data.example = true;
  spec.data.seq = 128;
  spec.train.global_batch = 8;
  spec.train.steps = 12;
  spec.train.async_save = false;
  spec.optimizer.learning_rate = 3e-3;
  spec.precision = precision;
  spec.run.device = device;
  spec.schedule.kind = RateKind::constant;  // a run of another length has the same rates
  spec.run.threads = 4;
  return spec;
}

struct Learned {
  std::vector<double> losses;
  std::vector<std::vector<double>> weights;
};

class Losses final : public Watcher {
 public:
  explicit Losses(std::vector<double>& losses) : losses_(losses) {}
  void stepped(const StepRecord& r) override { losses_.push_back(r.loss); }

 private:
  std::vector<double>& losses_;
};

Learned learn(const RunSpec& spec, const std::filesystem::path& folder, bool resumes = false) {
  const Plan plan = plan_run(spec);
  TrainingRun run(spec, device_of(spec), folder, {.arena_bytes = plan.peak});
  Progress progress = beginning(run);
  if (resumes)
    progress = resume(run, require_checkpoint(folder, [](const auto&, const auto&) {}), [](const std::string&) {});
  else
    run.init_weights();
  Learned learned;
  Losses watcher(learned.losses);
  train(run, progress, watcher);
  EXPECT_EQ(run.ledger().rows(), plan.rows);
  EXPECT_EQ(run.ledger().peak(), plan.peak);
  for (const auto& t : run.replica().tensors()) learned.weights.push_back(to_doubles(t.master, run.stream()));
  return learned;
}

TEST_F(TrainingOnTheGpu, GivesTheSameBitsTwiceInTheMemoryThatMetaSaid) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16, Precision::fp8}) {
    const RunSpec spec = small_run(RunDevice::cuda, precision);
    const Learned once = learn(spec, folder_.path() / "once"), twice = learn(spec, folder_.path() / "twice");
    EXPECT_EQ(once.losses, twice.losses);
    EXPECT_EQ(once.weights, twice.weights);
    EXPECT_LT(once.losses.back(), once.losses.front());
    std::filesystem::remove_all(folder_.path() / "once");
    std::filesystem::remove_all(folder_.path() / "twice");
  }
}

// Masks of documents, positions that begin anew, and padding; with one rank the steps are captured, but for samples of
// variable length.
TEST_F(TrainingOnTheGpu, LearnsFromDocumentsWhatTheCpuLearns) {
  for (const Documents documents : {Documents::masked, Documents::packed, Documents::nosplit, Documents::varlen})
    for (const PositionKind positions : {PositionKind::rope, PositionKind::learned}) {
      RunSpec spec = small_run(RunDevice::cuda, Precision::fp32);
      if (positions == PositionKind::learned) {
        spec.model = tiny_specs()[6].spec;
        spec.model.vocabulary = 257;
        spec.model.max_positions = 256;
        spec.model.dropout = spec.model.attention_dropout = 0;
      }
      ASSERT_EQ(spec.model.positions, positions);
      spec.data.documents = documents;
      RunSpec on_cpu = spec;
      on_cpu.run.device = RunDevice::cpu;
      const std::string name = fmt::format("{}-{}", name_of(documents), static_cast<int>(positions));
      const Learned gpu = learn(spec, folder_.path() / ("gpu-" + name)),
                    cpu = learn(on_cpu, folder_.path() / ("cpu-" + name));
      ASSERT_EQ(gpu.losses.size(), cpu.losses.size());
      for (std::size_t step = 0; step < gpu.losses.size(); ++step)
        EXPECT_NEAR(gpu.losses[step], cpu.losses[step], 1e-3) << name << ", step " << step;
    }
}

TEST_F(TrainingOnTheGpu, ComputingAgainOrCuttingIntoPiecesChangesMemoryOnly) {
  for (const Precision precision : {Precision::bf16, Precision::fp8}) {
    const RunSpec spec = small_run(RunDevice::cuda, precision);
    const std::string name(name_of(precision));
    const Learned kept = learn(spec, folder_.path() / ("kept_" + name));
    for (const Recompute recompute : {Recompute::elementwise, Recompute::projections, Recompute::full}) {
      RunSpec again = spec;
      again.memory.recompute = recompute;
      const Learned made = learn(again, folder_.path() / (std::string(name_of(recompute)) + "_" + name));
      EXPECT_EQ(made.losses, kept.losses) << name << ", " << name_of(recompute);
      EXPECT_EQ(made.weights, kept.weights) << name << ", " << name_of(recompute);
    }
  }
}

// Captured and replayed, or action by action: the same bits.
void expect_replay_equal(const RunSpec& spec) {
  const auto run = [&](bool capture) {
    Ledger ledger;
    const auto memory = make_memory(Device::cuda, ledger);
    cuda::Stream stream(*memory);
    Replica replica({.spec = spec.model,
                     .B = spec.train.global_batch,
                     .T = spec.data.seq,
                     .precision = spec.precision,
                     .capture = capture},
                    *memory, stream);
    replica.init_weights();
    std::vector<double> losses;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(spec.train.global_batch * spec.data.seq));
    for (int step = 0; step < 6; ++step) {
      for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>((i * 31 + step) % 257);
      replica.set_learning_rate(1e-3 * (step + 1));
      losses.push_back(replica.step(tokens, tokens).loss);
    }
    return losses;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_F(TrainingOnTheGpu, ReplaysWhatItWouldRun) { expect_replay_equal(small_run(RunDevice::cuda, Precision::bf16)); }
TEST_F(TrainingOnTheGpu, ReplaysWhatItWouldRunInFp32) {
  expect_replay_equal(small_run(RunDevice::cuda, Precision::fp32));
}

TEST_F(TrainingOnTheGpu, ReplaysWhatItWouldRunInFp16) {
  expect_replay_equal(small_run(RunDevice::cuda, Precision::fp16));
}

TEST_F(TrainingOnTheGpu, ReplaysWhatItWouldRunInFp8) {
  expect_replay_equal(small_run(RunDevice::cuda, Precision::fp8));
}

// Weights as a real model begins with. Those of the tiny specs, ten times as large, make rounding grow from layer to
// layer until FP8's gradients have little to do with bf16's.
RunSpec calm_run(RunDevice device, Precision precision) {
  RunSpec spec = small_run(device, precision);
  spec.model.init_std = 0.02;
  return spec;
}

// The loss and all gradients of one batch in a model of one block, at weights of the same bits.
struct FirstStep {
  double loss = 0;
  std::vector<std::string> names;
  std::vector<std::vector<double>> weights, gradients;
};
FirstStep first_step(RunDevice on, Precision precision, const std::vector<std::vector<double>>& weights = {}) {
  RunSpec spec = calm_run(on, precision);
  spec.model.layers = 1;
  Ledger ledger;
  const auto memory = make_memory(on == RunDevice::cuda ? Device::cuda : Device::cpu, ledger);
  const auto stream = make_stream(*memory, 4);
  Replica replica({.spec = spec.model, .B = spec.train.global_batch, .T = spec.data.seq, .precision = precision},
                  *memory, *stream);
  replica.init_weights();
  const auto tensors = replica.tensors();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::vector<float> values(weights[i].begin(), weights[i].end());
    upload(tensors[i].master, values.data(), *stream);
    stream->synchronize();
  }
  replica.resume(0, 0);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(spec.train.global_batch * spec.data.seq)), targets = tokens;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(i * 31 % 257);
    targets[i] = static_cast<std::int32_t>((i * i + 7) % 257);
  }
  FirstStep made;
  made.loss = replica.compute_gradients(tokens, targets);
  for (const auto& t : tensors) {
    made.names.push_back(t.tensor.name);
    made.weights.push_back(to_doubles(t.master, *stream));
    made.gradients.push_back(to_doubles(t.gradient, *stream));
  }
  return made;
}

double squared_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

// The devices' sums differ in their last bits, so here and there a value rounds the other way, which in FP8 is a whole
// step of a coarse type. How much that may be is what FP8 itself rounds off: the distance of its gradients from bf16's.
// The devices are closer to each other than that, in the mean of the tensors by a half at least: on the cpu, sums
// changed by 2^-13 of themselves come to 0.1, by 2^-8 to 0.2. A GPU that multiplied in bf16 would be at 1; a wrong
// scale or operand moves a gradient by as much as there is of it, 100 times and more.
TEST_F(TrainingOnTheGpu, InFp8TheFirstLossAndEveryGradientAreTheCpus) {
  const FirstStep wide = first_step(RunDevice::cpu, Precision::bf16),
                  cpu = first_step(RunDevice::cpu, Precision::fp8, wide.weights),
                  gpu = first_step(RunDevice::cuda, Precision::fp8, wide.weights);
  EXPECT_EQ(gpu.weights, cpu.weights);
  EXPECT_NEAR(gpu.loss, cpu.loss, 1e-4 * cpu.loss);
  double mean = 0;
  for (std::size_t i = 0; i < cpu.gradients.size(); ++i) {
    const double apart = squared_distance(gpu.gradients[i], cpu.gradients[i]),
                 rounded = squared_distance(cpu.gradients[i], wide.gradients[i]);
    ASSERT_GT(rounded, 0) << cpu.names[i];
    EXPECT_LE(apart, rounded) << cpu.names[i];
    mean += apart / rounded / static_cast<double>(cpu.gradients.size());
  }
  EXPECT_LE(mean, 0.5);
}

// At a small rate. A large one carries differences on, and Adam's first steps most of all: a gradient near zero of the
// other sign moves its weight the other way. At 3e-3 sums changed by 2^-13 change the losses of this run on one device
// by percents.
TEST_F(TrainingOnTheGpu, InFp8LearnsWhatTheCpuLearns) {
  const auto losses = [&](RunDevice device) {
    RunSpec spec = calm_run(device, Precision::fp8);
    spec.optimizer.learning_rate = 3e-4;
    return learn(spec, folder_.path() / std::string(name_of(device))).losses;
  };
  const std::vector<double> gpu = losses(RunDevice::cuda), cpu = losses(RunDevice::cpu);
  EXPECT_LT(cpu.back(), 0.9 * cpu.front()) << "it learns, or there is nothing to compare";
  for (std::size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(gpu[i], cpu[i], 1e-3 * cpu[i]) << "step " << i + 1;
}

TEST_F(TrainingOnTheGpu, StateMovesToTheCpuAndBack) {
  for (const auto& [from, to] :
       {std::pair{RunDevice::cuda, RunDevice::cpu}, std::pair{RunDevice::cpu, RunDevice::cuda}}) {
    RunSpec first = small_run(from, Precision::fp32);
    const auto unbroken = learn(first, folder_.path() / "unbroken");
    first.train.steps = 6;
    learn(first, folder_.path() / "moved");
    RunSpec second = small_run(to, Precision::fp32);
    const Learned rest = learn(second, folder_.path() / "moved", true);
    ASSERT_EQ(rest.losses.size(), 6u);
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_NEAR(rest.losses[i], unbroken.losses[6 + i], 1e-4 * unbroken.losses[6 + i])
          << name_of(from) << " to " << name_of(to);
    std::filesystem::remove_all(folder_.path() / "unbroken");
    std::filesystem::remove_all(folder_.path() / "moved");
  }
}

// The run that the mixed precision is for: 300 steps on text.
TEST_F(TrainingOnTheGpu, In16BitsEndsWhereFp32OnTheCpuDoes) {
  const auto end = [&](RunDevice device, Precision precision) {
    RunSpec spec = small_run(device, precision);
    spec.model.layers = 2;
    spec.data.example = false;  // text that a model of this size does not learn by heart
    spec.data.text = {LOCKSTEP_SOURCE_DIR "/docs", LOCKSTEP_SOURCE_DIR "/src"};
    spec.data.seq = 64;
    spec.train.steps = 300;
    spec.schedule = {};                   // a rate that falls, and is not high: else two runs that differ in a last bit
    spec.optimizer.learning_rate = 1e-3;  // end 1% apart, in any precision
    spec.run.threads = 8;
    const Learned learned = learn(spec, folder_.path() / name_of(device));
    double mean = 0;
    for (std::size_t i = 280; i < 300; ++i) mean += learned.losses[i] / 20;
    return mean;
  };
  const double exact = end(RunDevice::cpu, Precision::fp32);
  EXPECT_NEAR(end(RunDevice::cuda, Precision::bf16), exact, 5e-3 * exact);
  EXPECT_NEAR(end(RunDevice::cuda, Precision::fp16), exact, 5e-3 * exact);
  EXPECT_NEAR(end(RunDevice::cuda, Precision::fp8), exact, 1e-2 * exact);
  EXPECT_LT(exact, 3.0);  // it has learned something
}

TEST_F(TrainingOnTheGpu, MoreThanThereIsIsRefusedWithTheNumbers) {
  RunSpec spec = small_run(RunDevice::cuda, Precision::bf16);
  const Plan plan = plan_run(spec);
  try {
    require_fit(spec, plan, plan.peak / 2);
    FAIL() << "half of what it needs is enough";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::does_not_fit);
    EXPECT_NE(std::string(error.what()).find("activation"), std::string::npos) << error.what();
  }
  Ledger ledger;
  EXPECT_THROW(make_memory(Device::cuda, ledger, std::int64_t{1} << 50), UserError);
  const auto memory = make_memory(Device::cuda, ledger, 1 << 20);
  const Buffer most = memory->allocate(1 << 19, Tag::gradient);
  EXPECT_THROW(memory->allocate(1 << 20, Tag::activation), UserError);
}

}  // namespace
}  // namespace lockstep::tests
