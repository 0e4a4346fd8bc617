// Optimizer state on the host beside a GPU, updated there or brought to be updated: the bits of a run that keeps it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "offload/host_updates.h"
#include "plan/plan.h"
#include "support/program.h"
#include "support/tensor_box.h"
#include "support/tiny_specs.h"
#include "tensor/cuda/device.h"
#include "tensor/host_memory.h"
#include "tensor/make_stream.h"
#include "train/loop.h"
#include "train/resume.h"
#include "train/training_run.h"
#include "train/update_choice.h"

namespace lockstep::tests {
namespace {

class UpdatesBesideTheGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
  TemporaryFolder folder_;
};

RunSpec offloaded_gpu_run(const PrecisionSpec& precision, const OptimizerSpec& optimizer) {
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
  spec.layout.micro = 2;
  spec.optimizer = optimizer;
  spec.optimizer.learning_rate = 3e-3;
  spec.precision = precision;
  spec.run.device = RunDevice::cuda;
  spec.schedule.kind = RateKind::constant;
  spec.run.threads = 4;
  return spec;
}

struct GpuState {
  std::vector<double> losses;
  std::vector<std::vector<char>> state;  // masters and moments, tensor by tensor
};

class LossesOfUpdates final : public Watcher {
 public:
  explicit LossesOfUpdates(std::vector<double>& losses) : losses_(losses) {}
  void stepped(const StepRecord& r) override { losses_.push_back(r.loss); }

 private:
  std::vector<double>& losses_;
};

GpuState train_beside(const RunSpec& spec, const std::filesystem::path& folder) {
  const Plan plan = plan_run(spec);
  TrainingRun run(spec, device_of(spec), folder, {.arena_bytes = plan.peak});
  Progress progress = beginning(run);
  run.init_weights();
  GpuState learned;
  LossesOfUpdates watcher(learned.losses);
  train(run, progress, watcher);
  EXPECT_EQ(run.ledger().rows(), plan.rows);
  EXPECT_EQ(run.ledger().peak(), plan.peak);
  EXPECT_EQ(run.host_ledger().peak(), plan.host);
  for (const StateTensor& t : run.replica().state()) {
    std::vector<char>& bytes = learned.state.emplace_back(static_cast<std::size_t>(t.live.bytes()));
    download(bytes.data(), t.live, run.stream());
  }
  return learned;
}

TEST_F(UpdatesBesideTheGpu, LearnTheBitsOfStateThatStays) {
  PrecisionSpec small = Precision::bf16, smallest = Precision::bf16;
  small.moments = small.gradients = StateType::bf16;
  smallest = small;
  smallest.master = StateType::bf16;
  const OptimizerSpec adamw{.clip = 0.1}, sgd{.kind = OptimizerKind::sgd, .momentum = 0.9, .clip = 0.1};
  int number = 0;
  for (const auto& [precision, optimizer] : std::vector<std::pair<PrecisionSpec, OptimizerSpec>>{
           {Precision::fp32, adamw}, {Precision::bf16, adamw}, {small, adamw}, {smallest, adamw}, {small, sgd}}) {
    RunSpec spec = offloaded_gpu_run(precision, optimizer);
    const auto folder = [&] { return folder_.path() / std::to_string(number++); };
    const GpuState kept = train_beside(spec, folder());
    EXPECT_LT(kept.losses.back(), kept.losses.front());
    for (const OffloadUpdate where : {OffloadUpdate::device, OffloadUpdate::host})
      for (const double share : {1.0, 0.4}) {
        spec.memory.offload_optimizer = Offload::host;
        spec.memory.offload_update = where;
        spec.memory.offload_share = share;
        spec.memory.offload_window = 1;  // a unit has several windows then
        const GpuState moved = train_beside(spec, folder());
        EXPECT_EQ(moved.losses, kept.losses) << name_of(where) << ", share " << share << ", case " << number;
        EXPECT_TRUE(moved.state == kept.state) << name_of(where) << ", share " << share << ", case " << number;
      }
  }
}

// Every window waits for its slot, its gradient and its weights: long passes in small windows, with work that takes
// longer than the copies, and gradients that change as soon as the device may change them.
TEST_F(UpdatesBesideTheGpu, KeepTheOrderOfManyWindows) {
  constexpr std::int64_t n = 300'000, rounds = 6;
  Ledger ledger, host_ledger;
  const auto memory = make_memory(Device::cuda, ledger);
  const auto host = make_host_memory(Device::cuda, host_ledger);
  const auto stream = make_stream(*memory, 1);
  HostUpdates updates({.window_bytes = 8 * 4096, .threads = 2, .controls = 1},
                      {{.elements = n, .gradient = DType::f32, .weight = DType::f32, .weight_comes = false}}, *host,
                      *memory, *stream);
  const Buffer gradient = memory->allocate(n * 4, Tag::gradient), weight = memory->allocate(n * 4, Tag::parameter),
               control = memory->allocate(8, Tag::workspace), state = host->allocate(n * 4, Tag::optimizer);
  const Tensor g = view(gradient, DType::f32, {n}), w = view(weight, DType::f32, {n}),
               c = view(control, DType::f64, {1}), s = view(state, DType::f32, {n});
  for (std::int64_t i = 0; i < n; ++i) s.data<float>()[i] = 0;
  std::vector<float> want(n), values(n);
  for (std::int64_t round = 1; round <= rounds; ++round) {
    for (std::int64_t i = 0; i < n; ++i) {
      values[static_cast<std::size_t>(i)] = static_cast<float>((i + round) % 17);
      want[static_cast<std::size_t>(i)] += values[static_cast<std::size_t>(i)] * static_cast<float>(round);
    }
    updates.wait_for(0);
    upload(g, values.data(), *stream);
    const auto said = static_cast<double>(round);
    upload(c, &said, *stream);
    updates.hold(c);
    const double another = -1;
    upload(c, &another, *stream);  // of the next step
    updates.run(0, g, w, [s](const HostUpdates::Window& window) {
      const auto factor = static_cast<float>(TensorBox::read(window.control, 0));
      for (std::int64_t i = 0; i < window.count; ++i) {
        float& at = s.data<float>()[window.begin + i];
        at += window.gradient.data<float>()[i] * factor;
        window.weight.data<float>()[i] = at;
      }
    });
  }
  updates.wait_for(0);
  std::vector<float> got(n);
  download(got.data(), w, *stream);
  EXPECT_EQ(got, want);
  updates.settle();
  EXPECT_TRUE(std::equal(want.begin(), want.end(), s.data<float>()));
}

TEST_F(UpdatesBesideTheGpu, AreChosenByRatesAndWrittenIntoTheRunFile) {
  RunSpec spec = offloaded_gpu_run(Precision::bf16, {.clip = 0.1});
  spec.memory.offload_optimizer = Offload::host;
  const UpdateRates rates = measure_update_rates(spec, Device::cuda, 4);
  EXPECT_GT(rates.up_per_s, 1e9) << "copies of page-locked memory";
  const UpdateSeconds seconds = update_seconds(spec, rates);
  EXPECT_GT(seconds.device, 0);
  ASSERT_TRUE(choose_update(spec, Device::cuda, 4, nullptr));
  TrainingRun run(spec, Device::cuda, folder_.path() / "run");
  EXPECT_THAT(beginning(run).run_file,
              ::testing::HasSubstr(fmt::format("offload_update = \"{}\"", name_of(spec.memory.offload_update))));
  EXPECT_NE(spec.memory.offload_update, OffloadUpdate::choose);
}

}  // namespace
}  // namespace lockstep::tests
