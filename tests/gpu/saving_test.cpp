// Checkpoints whose snapshots are copied beside the next step hold the state of their own.
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "support/program.h"
#include "support/run_results.h"
#include "support/tiny_specs.h"
#include "tensor/cuda/device.h"
#include "train/loop.h"
#include "train/resume.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

class SavesBesideSteps : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
  }
  TemporaryFolder folder_;
};

// Much state and little to compute: it takes longer to copy than the next step's gradients take.
RunSpec much_state(bool beside, SnapshotPlace place) {
  RunSpec spec;
  spec.model = tiny_specs()[0].spec;
  spec.model.vocabulary = 32768;
  spec.model.width = 1024;
  spec.model.heads = spec.model.kv_heads = 8;
  spec.model.head_width = 128;
  spec.model.ffn_width = 512;
  spec.model.layers = 1;
  spec.model.max_positions = 64;
  spec.data.example = true;
  spec.data.seq = 16;
  spec.train.global_batch = 2;
  spec.train.steps = 6;
  spec.train.save_every = 1;
  spec.train.async_save = beside;
  spec.train.snapshot = place;
  spec.precision = Precision::bf16;
  spec.run.device = RunDevice::cuda;
  spec.schedule.kind = RateKind::constant;
  return spec;
}

// Steps that run ahead are captured from the second on, and the state of each is saved.
TEST_F(SavesBesideSteps, HoldTheStateOfTheirStep) {
  const auto saved = [&](bool beside, SnapshotPlace place = SnapshotPlace::automatic) {
    const std::filesystem::path out = folder_ / fmt::format("{} {}", beside ? "beside" : "waiting", name_of(place));
    const RunSpec spec = much_state(beside, place);
    TrainingRun run(spec, device_of(spec), out / "checkpoints", {.arena_bytes = plan_run(spec).peak});
    Progress progress = beginning(run);
    run.init_weights();
    Watcher watcher;
    train(run, progress, watcher);
    EXPECT_EQ(run.ledger().peak(), plan_run(spec).peak);
    return results_in(out).files;
  };
  const auto waiting = saved(false);
  ASSERT_GE(waiting.size(), 2u);
  EXPECT_TRUE(saved(true, SnapshotPlace::host) == waiting);
  EXPECT_TRUE(saved(true, SnapshotPlace::device) == waiting);
}

}  // namespace
}  // namespace lockstep::tests
