// Where the time of a GPU's step goes, by events of its stream: the parts add up to the step, and no bit changes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "spec/model/presets.h"
#include "support/paired_ratios.h"
#include "support/program.h"
#include "telemetry/rank_records.h"
#include "tensor/cuda/device.h"
#include "train/loop.h"

namespace lockstep::tests {
namespace {

class StepTimesOnTheGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
};

struct GpuBook final : Watcher {
  void stepped(const StepRecord& record) override {
    steps.push_back(record);
    ended.push_back(std::chrono::steady_clock::now());
  }
  void timed(std::int64_t step, const std::vector<TimesByUse>& by_rank, const std::vector<SentByAxis>&) override {
    EXPECT_EQ(step, steps.back().step) << "before the next step is told";
    times.push_back(by_rank.front());
  }
  std::vector<StepRecord> steps;
  std::vector<TimesByUse> times;
  std::vector<std::chrono::steady_clock::time_point> ended;
};

RunSpec gpu_run(double dropout, std::int64_t steps) {
  RunSpec spec;
  spec.model = preset("llama-5m").value();
  spec.model.dropout = dropout;  // with dropout steps are not captured
  spec.data.synthetic = SyntheticSpec{.vocabulary = 256, .order = 1};
  spec.data.seq = 512;
  spec.train.global_batch = 32;
  spec.train.steps = steps;
  spec.train.eval_every = spec.train.save_every = 0;
  spec.train.save_last = false;
  spec.run.device = RunDevice::cuda;
  spec.precision = Precision::bf16;
  return spec;
}

GpuBook book_of(const RunSpec& spec, bool paused) {
  TrainingRun run(spec, Device::cuda, "");
  run.init_weights();
  run.pause_account(paused);
  GpuBook book;
  Progress progress;
  train(run, progress, book);
  return book;
}

TEST_F(StepTimesOnTheGpu, AddUpToTheStep) {
  for (const double dropout : {0.0, 0.1}) {
    const GpuBook book = book_of(gpu_run(dropout, 60), false);
    ASSERT_EQ(book.times.size(), 60u);
    // Of fifty steps by the host's clock: how late it learns of an end does not matter then.
    const double wall = std::chrono::duration<double>(book.ended[59] - book.ended[9]).count();
    double steps = 0, parts = 0, others = 0;
    for (std::size_t i = 10; i < 60; ++i) {
      steps += book.steps[i].seconds;
      parts += book.times[i].total();
      others += book.times[i][TimeUse::other];
      EXPECT_GT(book.times[i][TimeUse::compute], book.times[i][TimeUse::optimizer]);
      EXPECT_GT(book.times[i][TimeUse::optimizer], 0);
    }
    EXPECT_NEAR(parts / wall, 1, 0.02) << dropout;
    EXPECT_NEAR(steps / wall, 1, 0.02) << dropout;
    EXPECT_LT(others / steps, 0.02) << dropout;
  }
}

TEST_F(StepTimesOnTheGpu, ChangeNoBit) {
  for (const double dropout : {0.0, 0.1}) {
    const GpuBook with = book_of(gpu_run(dropout, 8), false), without = book_of(gpu_run(dropout, 8), true);
    EXPECT_TRUE(without.times.empty());
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(with.steps[i].loss, without.steps[i].loss);
      EXPECT_EQ(with.steps[i].grad_norm, without.steps[i].grad_norm);
    }
  }
}

// Steps with records and without, in turn, in one process: captured steps and steps that are not.
TEST_F(StepTimesOnTheGpu, CostLessThanOnePercent) {
  for (const double dropout : {0.0, 0.1}) {
    RunSpec spec = gpu_run(dropout, 1);
    spec.model = preset("llama-60m").value();
    spec.model.dropout = dropout;
    TrainingRun run(spec, Device::cuda, "");
    run.init_weights();
    const TemporaryFolder folder;
    RankRecords records(folder.path(), 0);
    std::int64_t number = 0;
    const auto seconds = [&](bool recorded) {
      run.pause_account(!recorded);
      const auto begin = std::chrono::steady_clock::now();
      run.step(number++ * run.spec().train.global_batch, 1e-4);
      if (const auto times = run.take_times(); recorded)
        records.write(number, rank_json(number, *times, run.take_sent()));
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    for (int i = 0; i < 10; ++i) seconds(i % 2 == 0);
    std::mt19937 random(5);
    std::vector<double> ratios;
    for (int pair = 0; pair < 400; ++pair) {
      const bool first = random() % 2 == 0;
      const double one = seconds(first), other = seconds(!first);
      ratios.push_back(first ? one / other : other / one);
    }
    const PairedRatios cost = paired_ratios(ratios);
    fmt::print(
        "dropout {}: a recorded step takes {:+.2f} % (median of 400 pairs), with 95 % confidence at most {:+.2f} %\n",
        dropout, (cost.median - 1) * 100, (cost.limit - 1) * 100);
    EXPECT_LT(cost.limit, 1.01) << dropout;
  }
}

}  // namespace
}  // namespace lockstep::tests
