// Activations in the host's memory or on a disk between forward and backward: the same bits on the GPU, in the memory
// that meta said.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "support/program.h"
#include "support/tiny_specs.h"
#include "tensor/cuda/device.h"
#include "tensor/transfer.h"
#include "train/loop.h"
#include "train/resume.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

class OffloadedActivationsOnTheGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
  TemporaryFolder folder_;
};

// Large enough for copies that take longer than the call that begins them.
RunSpec offloaded_gpu_run(const std::string& family, Precision precision) {
  const std::vector<NamedSpec> specs = tiny_specs();
  const auto named = std::ranges::find_if(specs, [&](const NamedSpec& s) { return s.name.find(family) == 0; });
  LOCKSTEP_CHECK(named != specs.end(), "no model {}", family);
  RunSpec spec;
  spec.model = named->spec;
  spec.model.width = 256;
  spec.model.heads = 4;
  spec.model.kv_heads = spec.model.kv_heads == named->spec.heads ? 4 : 2;
  spec.model.head_width = 64;
  spec.model.ffn_width = 704;
  spec.model.layers = 8;
  spec.model.vocabulary = 257;
  spec.model.max_positions = 512;
  spec.data.example = true;
  spec.data.seq = 512;
  spec.train.global_batch = 16;
  spec.train.steps = 8;
  spec.train.async_save = false;
  spec.optimizer.learning_rate = 3e-3;
  spec.layout.micro = 2;
  spec.precision = precision;
  spec.run.device = RunDevice::cuda;
  spec.run.threads = 4;
  return spec;
}

class OffloadedGpuLosses final : public Watcher {
 public:
  explicit OffloadedGpuLosses(std::vector<double>& losses) : losses_(losses) {}
  void stepped(const StepRecord& r) override { losses_.push_back(r.loss); }

 private:
  std::vector<double>& losses_;
};

struct OffloadedGpuResult {
  std::vector<double> losses;
  std::vector<std::vector<double>> weights;
  Plan plan;
  std::int64_t peak = 0;  // of the ledger
};

OffloadedGpuResult learn_on_gpu(const RunSpec& spec, const std::filesystem::path& folder) {
  OffloadedGpuResult result{.losses = {}, .weights = {}, .plan = plan_run(spec)};
  TrainingRun run(spec, Device::cuda, folder, {.arena_bytes = result.plan.peak});
  run.init_weights();
  Progress progress = beginning(run);
  OffloadedGpuLosses watcher(result.losses);
  train(run, progress, watcher);
  EXPECT_EQ(run.ledger().rows(), result.plan.rows);
  EXPECT_EQ(run.host_ledger().peak(), result.plan.host);
  EXPECT_EQ(run.disk_ledger().peak(), result.plan.disk);
  EXPECT_EQ(run.replica().moved_activations().from_device, spec.train.steps * result.plan.moved_activations);
  result.peak = run.ledger().peak();
  for (const auto& t : run.replica().tensors()) result.weights.push_back(to_doubles(t.master, run.stream()));
  return result;
}

TEST_F(OffloadedActivationsOnTheGpu, ChangeMemoryAndNotABit) {
  int folder = 0;
  for (const char* family : {"llama", "gpt2"})
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const RunSpec spec = offloaded_gpu_run(family, precision);
      const OffloadedGpuResult kept = learn_on_gpu(spec, folder_.path() / std::to_string(folder++));
      EXPECT_EQ(kept.plan.moved_activations, 0);
      for (const Recompute recompute :
           {Recompute::none, Recompute::elementwise, Recompute::projections, Recompute::full})
        for (const std::int64_t blocks : {0, 3}) {
          RunSpec other = spec;
          other.memory.recompute = recompute;
          const Plan here = plan_run(other);
          other.memory.offload_activations = Offload::host;
          other.memory.offload_blocks = blocks;
          const OffloadedGpuResult moved = learn_on_gpu(other, folder_.path() / std::to_string(folder++));
          const std::string what = std::string(family) + ", " + std::string(name_of(recompute));
          EXPECT_EQ(moved.losses, kept.losses) << what;
          EXPECT_EQ(moved.weights, kept.weights) << what;
          EXPECT_GT(moved.plan.moved_activations, 0) << what;
          EXPECT_EQ(moved.peak, moved.plan.peak) << what;
          EXPECT_EQ(here.peak - moved.peak, here.peak_of(Tag::activation) - moved.plan.peak_of(Tag::activation))
              << what;
          if (blocks == 0) {
            EXPECT_LT(moved.peak, here.peak) << what;
          }
        }
    }
}

// Through rooms on the host, by themselves and beside state, gradients and weights on the same disk.
TEST_F(OffloadedActivationsOnTheGpu, OnADiskChangeNoBit) {
  int folder = 0;
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    RunSpec spec = offloaded_gpu_run("llama", precision);
    spec.layout.zero = 3;
    const OffloadedGpuResult kept = learn_on_gpu(spec, folder_.path() / std::to_string(folder++));
    for (const Recompute recompute : {Recompute::none, Recompute::full})
      for (const bool others : {false, true}) {
        RunSpec other = spec;
        other.memory.recompute = recompute;
        other.memory.offload_folder = folder_.path();
        other.memory.offload_activations = Offload::disk;
        if (others) {
          other.memory.offload_optimizer = other.memory.offload_gradients = other.memory.offload_parameters =
              Offload::disk;
          other.memory.offload_window = 1;
        }
        const OffloadedGpuResult moved = learn_on_gpu(other, folder_.path() / std::to_string(folder++));
        EXPECT_EQ(moved.losses, kept.losses) << name_of(recompute);
        EXPECT_EQ(moved.weights, kept.weights) << name_of(recompute);
        EXPECT_GT(moved.plan.moved_activations, 0);
        EXPECT_EQ(moved.peak, moved.plan.peak);
      }
  }
}

// Beside optimizer state that is offloaded to the same place.
TEST_F(OffloadedActivationsOnTheGpu, ShareTheHostWithOptimizerState) {
  const RunSpec spec = offloaded_gpu_run("llama", Precision::bf16);
  const OffloadedGpuResult kept = learn_on_gpu(spec, folder_.path() / "kept");
  RunSpec other = spec;
  other.memory.offload_activations = other.memory.offload_optimizer = Offload::host;
  other.memory.offload_window = 1;
  const OffloadedGpuResult moved = learn_on_gpu(other, folder_.path() / "moved");
  EXPECT_EQ(moved.losses, kept.losses);
  EXPECT_EQ(moved.weights, kept.weights);
}

}  // namespace
}  // namespace lockstep::tests
