// A snapshot on the GPU is counted, and chosen where it fits.
#include "plan/snapshot_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/plan.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

RunSpec gpu_run(SnapshotPlace place) {
  RunSpec spec;
  spec.model = tiny_specs().front().spec;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 8;
  spec.train = {.steps = 6, .global_batch = 6, .save_every = 2, .snapshot = place};
  spec.run.device = RunDevice::cuda;
  return spec;
}

std::int64_t needs(const Plan& plan) { return plan.peak + plan.outside; }

TEST(SnapshotPlaces, OnTheGpuTakesAsMuchThereAsOnTheHost) {
  const Plan host = plan_run(gpu_run(SnapshotPlace::host)), device = plan_run(gpu_run(SnapshotPlace::device));
  const std::pair<Tag, std::string> row{Tag::workspace, "checkpoint"};
  ASSERT_TRUE(device.rows.contains(row));
  EXPECT_FALSE(host.rows.contains(row));
  EXPECT_EQ(device.rows.at(row).peak, host.host_rows.at(row).peak);
  EXPECT_EQ(device.peak, host.peak + host.host_rows.at(row).peak);
  EXPECT_EQ(device.host, host.host);
}

TEST(SnapshotPlaces, AutoIsTheGpuWhereThatHasRoom) {
  const std::int64_t most = needs(plan_run(gpu_run(SnapshotPlace::device)));
  const auto chosen = [](SnapshotPlace asked, std::int64_t available) {
    RunSpec spec = gpu_run(asked);
    EXPECT_EQ(resolve_snapshot(spec, available), "");
    return spec.train.snapshot;
  };
  EXPECT_EQ(chosen(SnapshotPlace::automatic, most * 20 / 19 + 20), SnapshotPlace::device);
  EXPECT_EQ(chosen(SnapshotPlace::automatic, most), SnapshotPlace::host) << "a twentieth stays free";
  EXPECT_EQ(chosen(SnapshotPlace::device, most), SnapshotPlace::device);
  EXPECT_EQ(chosen(SnapshotPlace::host, 2 * most), SnapshotPlace::host);
}

TEST(SnapshotPlaces, WithoutRoomIsTheHostAndIsTold) {
  RunSpec spec = gpu_run(SnapshotPlace::device);
  const std::int64_t most = needs(plan_run(spec));
  EXPECT_THAT(resolve_snapshot(spec, most - 1), ::testing::HasSubstr("does not fit beside the run on this GPU"));
  EXPECT_EQ(spec.train.snapshot, SnapshotPlace::host);
}

TEST(SnapshotPlaces, OfRunsThatSaveNothingBesideStepsIsTheHost) {
  RunSpec waits = gpu_run(SnapshotPlace::automatic), never = waits;
  waits.train.async_save = false;
  never.train.save_every = 0;
  never.train.save_last = false;
  for (RunSpec* const spec : {&waits, &never}) {
    EXPECT_EQ(resolve_snapshot(*spec, std::int64_t{1} << 50), "");
    EXPECT_EQ(spec->train.snapshot, SnapshotPlace::host);
  }
}

TEST(SnapshotPlaces, OfRunsOnTheCpuStayAsTheyAre) {
  RunSpec spec = gpu_run(SnapshotPlace::automatic);
  spec.run.device = RunDevice::cpu;
  EXPECT_EQ(resolve_snapshot(spec, std::int64_t{1} << 50), "");
  EXPECT_EQ(spec.train.snapshot, SnapshotPlace::automatic);
}

}  // namespace
}  // namespace lockstep::tests
