// State in the host's memory beside a GPU: the same bits, and less of the GPU's memory.
#include <gtest/gtest.h>

#include "spec/layout/layout_toml.h"
#include "spec/model/presets.h"
#include "tensor/cuda/device.h"
#include "tensor/transfer.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

class OffloadOnTheGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
};

RunSpec offloading_run(const MemorySpec& memory, const char* layout, PrecisionSpec precision = Precision::bf16) {
  RunSpec spec;
  spec.model = preset("llama-5m").value();
  spec.data.synthetic = SyntheticSpec{.vocabulary = 256, .order = 1};
  spec.data.seq = 64;
  spec.train.global_batch = 8;
  spec.train.save_last = false;
  spec.train.save_every = 0;
  spec.layout = parse_layout(layout);
  spec.run.device = RunDevice::cuda;
  spec.precision = precision;
  spec.optimizer.clip = 0.5;
  spec.memory = memory;
  return spec;
}

struct LearnedOnGpu {
  std::vector<double> losses, norms;
  std::vector<char> state;
  std::int64_t peak;
};

LearnedOnGpu learn_on_gpu(const RunSpec& spec) {
  TrainingRun run(spec, Device::cuda, "");
  run.init_weights();
  LearnedOnGpu learned;
  // Several steps at a time, so that updates run beside the next forward.
  constexpr int kSteps = 6;
  const auto finish = [&] {
    const Replica::Result result = run.finish_step();
    learned.losses.push_back(result.loss);
    learned.norms.push_back(result.norm);
  };
  for (int step = 0; step < kSteps; ++step) {
    run.begin_step(step * spec.train.global_batch, 1e-2);
    if (step > 0) finish();
  }
  finish();
  for (const StateTensor& t : run.replica().state()) {
    std::vector<char> bytes(static_cast<std::size_t>(t.live.bytes()));
    download(bytes.data(), t.live, run.stream());
    learned.state.insert(learned.state.end(), bytes.begin(), bytes.end());
  }
  learned.peak = run.ledger().peak();
  return learned;
}

TEST_F(OffloadOnTheGpu, ChangesNoBit) {
  PrecisionSpec small = Precision::bf16;
  small.gradients = small.moments = small.master = StateType::bf16;
  for (const PrecisionSpec& precision : {PrecisionSpec{Precision::bf16}, PrecisionSpec{Precision::fp32}, small})
    for (const char* layout : {"micro=1,zero=3", "micro=4,zero=3"}) {
      const LearnedOnGpu here = learn_on_gpu(offloading_run({}, layout, precision));
      const MemorySpec optimizer{.offload_optimizer = Offload::host, .offload_window = 1};
      const MemorySpec gradients{.offload_gradients = Offload::host, .offload_window = 1};
      const MemorySpec parameters{.offload_parameters = Offload::host, .offload_window = 1};
      const MemorySpec all{.offload_optimizer = Offload::host,
                           .offload_gradients = Offload::host,
                           .offload_parameters = Offload::host,
                           .offload_window = 1};
      MemorySpec half = all;
      half.offload_share = 0.5;
      MemorySpec on_disk = all;
      on_disk.offload_optimizer = on_disk.offload_gradients = on_disk.offload_parameters = Offload::disk;
      on_disk.offload_folder = "/tmp";
      for (const MemorySpec& memory : {optimizer, gradients, parameters, all, half, on_disk}) {
        const LearnedOnGpu there = learn_on_gpu(offloading_run(memory, layout, precision));
        const std::string what = fmt::format("{}: optimizer {}, gradients {}, parameters {}, share {}", layout,
                                             name_of(memory.offload_optimizer), name_of(memory.offload_gradients),
                                             name_of(memory.offload_parameters), memory.offload_share);
        EXPECT_EQ(there.losses, here.losses) << what;
        EXPECT_EQ(there.norms, here.norms) << what;
        EXPECT_TRUE(there.state == here.state) << what << ": other state";
        // Of so small a model the gradients of four units are most of them.
        if (memory.offload_optimizer != Offload::none) {
          EXPECT_LT(there.peak, here.peak) << what;
        }
      }
    }
}

// What plan counts is what the GPU and the host hold.
TEST_F(OffloadOnTheGpu, TakesTheBytesThatMetaSays) {
  for (const Offload where : {Offload::host, Offload::disk}) {
    RunSpec spec = offloading_run({.offload_optimizer = where,
                                   .offload_gradients = where,
                                   .offload_parameters = where,
                                   .offload_share = 0.7,
                                   .offload_window = 1},
                                  "micro=2,zero=3");
    if (where == Offload::disk) spec.memory.offload_folder = "/tmp";
    TrainingRun real(spec, Device::cuda, ""), counted(spec, Device::meta, "");
    for (TrainingRun* run : {&real, &counted}) {
      run->init_weights();
      run->step(0, 1e-3);
      run->step(8, 1e-3);
    }
    EXPECT_EQ(real.ledger().rows(), counted.ledger().rows());
    EXPECT_EQ(real.host_ledger().rows(), counted.host_ledger().rows());
    EXPECT_EQ(real.disk_ledger().rows(), counted.disk_ledger().rows());
    EXPECT_EQ(real.replica().traffic(), counted.replica().traffic());
  }
}

}  // namespace
}  // namespace lockstep::tests
