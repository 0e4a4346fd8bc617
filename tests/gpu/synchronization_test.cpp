// Parameter servers, asynchronous training, local steps and pipelines without a flush, of thread ranks that share a
// GPU: what they learn is what the serial programs on the cpu learn.
#include <gtest/gtest.h>

#include <cmath>

#include "support/async_ranks.h"
#include "support/learning_ranks.h"
#include "support/pipedream_ranks.h"
#include "support/serial_local_steps.h"
#include "support/tiny_specs.h"
#include "tensor/cuda/device.h"

namespace lockstep::tests {
namespace {

// The gpu's sums have another order than the cpu's, and 20 steps carry what rounding makes of that.
constexpr double kDeviceRounding = 1e-9;

class SynchronizationOnTheGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
};

double distance_of(const PlainValues& a, const PlainValues& b) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i)
    for (std::size_t e = 0; e < b[i].size(); ++e) {
      error += std::pow(a[i][e] - b[i][e], 2);
      size += std::pow(b[i][e], 2);
    }
  return std::sqrt(error / size);
}

void expect_losses(const std::vector<double>& many, const std::vector<double>& one, const std::string& what) {
  ASSERT_EQ(many.size(), one.size()) << what;
  for (std::size_t step = 0; step < one.size(); ++step)
    EXPECT_NEAR(many[step], one[step], kDeviceRounding * one[step]) << what << ", step " << step;
}

TEST_F(SynchronizationOnTheGpu, ServersLearnTheBitsOfDdp) {
  for (const LayoutSpec& layout : {LayoutSpec{.dp = 3, .micro = 2, .dp_kind = DpKind::server, .servers = 2},
                                   LayoutSpec{.dp = 2, .tp = 3, .micro = 2, .dp_kind = DpKind::server, .servers = 3}}) {
    LayoutSpec plain = layout;
    plain.dp_kind = DpKind::ddp;
    plain.servers = 0;
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const auto on_gpu = [&](const LayoutSpec& of) {
        return learn(learning_options(cut_specs()[0].spec, of, precision), 3, {}, Device::cuda);
      };
      expect_equal(on_gpu(layout), on_gpu(plain), to_text(layout));
    }
  }
}

// Their sums and updates are the cpu's, beside gradients of the GPU.
TEST_F(SynchronizationOnTheGpu, ServersOnTheCpuLearnWhatServersOnTheGpuDo) {
  const LayoutSpec layout{.dp = 3, .micro = 2, .dp_kind = DpKind::server, .servers = 2};
  const Replica::Options o = learning_options(tiny_specs()[0].spec, layout, Precision::fp64);
  expect_close(learn(o, 8, {}, Device::cuda, true), learn(o, 8, {}, Device::cuda), 1e-11, "servers on the cpu");
}

TEST_F(SynchronizationOnTheGpu, AsynchronousServersAreTheSerialModelInTheRecordedOrder) {
  for (const auto& [workers, servers, micro, bound] :
       {std::tuple{3, 2, 2, kNoStalenessBound}, {4, 1, 1, std::int64_t{2}}}) {
    const Replica::Options o = async_options(tiny_specs()[0].spec, async_layout(workers, servers, micro), bound);
    const std::string what = fmt::format("{}, staleness {}", to_text(o.layout), bound);
    const AsyncTraining training{.device = Device::cuda};
    const AsyncLearned many = train_async(o, training);
    ASSERT_EQ(std::ssize(many.arrivals), training.steps * workers) << what;
    expect_close(many, simulate_async(o, training, many.arrivals), kDeviceRounding, what);
    AsyncTraining again = training;
    again.record = many.arrivals;
    expect_same_bits(train_async(o, again), many, what + ", again");
  }
}

TEST_F(SynchronizationOnTheGpu, LocalStepsAreTheSerialModels) {
  for (const OuterStep outer : {OuterStep::average, OuterStep::nesterov}) {
    const Replica::Options o = local_options(tiny_specs()[0].spec, {.dp = 3, .micro = 2}, local_sync(5, outer), 12);
    const LocalTrajectory one = simulate_local_steps(o, 3), many = train_local_steps(o, Device::cuda);
    expect_losses(many.losses, one.losses, std::string(name_of(outer)));
    EXPECT_LE(distance_of(many.weights, one.weights), kDeviceRounding) << name_of(outer);
  }
}

// Groups of two that shard their state.
TEST_F(SynchronizationOnTheGpu, LocalStepsOfGroupsAreTheSerialModels) {
  SyncSpec sync = local_sync(4, OuterStep::nesterov);
  sync.kind = SyncKind::mixed;
  sync.group = 2;
  const LayoutSpec layout{.dp = 4, .micro = 2, .zero = 2, .grad_sync = GradSync::micro, .shard = 2};
  const Replica::Options o = local_options(tiny_specs()[0].spec, layout, sync, 8);
  const LocalTrajectory one = simulate_local_steps(o, 2), many = train_local_steps(o, Device::cuda);
  expect_losses(many.losses, one.losses, "groups");
  EXPECT_LE(distance_of(many.weights, one.weights), kDeviceRounding);
}

TEST_F(SynchronizationOnTheGpu, PipelinesWithoutAFlushAreTheSerialModel) {
  for (const ScheduleKind kind : {ScheduleKind::pipedream, ScheduleKind::pipedream_2bw}) {
    PipeDreamRun run = pipedream_run(tiny_specs()[0].spec, kind, 3, 3, 2);
    run.drained = {7};
    const PipeDreamTrained many = train_pipedream(run, Device::cuda);
    const PipeDreamTrajectory one = simulate_pipedream(run, many.stage_of);
    expect_losses(many.run.losses, one.losses, std::string(name_of(kind)));
    EXPECT_LE(distance_of(many.run.weights, one.weights), kDeviceRounding) << name_of(kind);
  }
}

}  // namespace
}  // namespace lockstep::tests
