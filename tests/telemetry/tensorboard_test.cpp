// Event files, read by a reader that shares nothing with their writer.
#include "telemetry/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "support/event_files.h"
#include "support/program.h"
#include "support/small_disk.h"

namespace lockstep {
namespace {

using ::testing::StartsWith;
using tests::event_files;
using tests::EventFileReader;
using tests::ReadEvent;
using tests::TemporaryFolder;

StepRecord step_of(std::int64_t step) {
  StepRecord r;
  r.step = step, r.loss = 3.25 + static_cast<double>(step), r.lr = 1e-3, r.grad_norm = 0.5, r.seconds = 0.125;
  r.tokens_per_s = 12345, r.mfu = 0.375, r.time = 1.5e9 + static_cast<double>(step);
  return r;
}

TEST(EventFiles, ChecksumsAreCastagnolis) {
  // The check value of CRC-32C's catalogues, and one of RFC 3720.
  EXPECT_EQ(tests::crc32c_by_bits("123456789"), 0xE3069283u);
  EXPECT_EQ(tests::crc32c_by_bits(std::string(32, '\0')), 0x8A9136AAu);
  for (const std::string& text : {std::string(), std::string("123456789"), std::string(300, '\xA5')}) {
    const std::uint32_t crc = tests::crc32c_by_bits(text);
    EXPECT_EQ(masked_crc32c(text), (crc >> 15 | crc << 17) + 0xa282ead8u);
  }
}

TEST(EventFiles, HoldTheVersionTheStartAndEveryScalar) {
  TemporaryFolder folder;
  std::filesystem::path path;
  {
    TensorboardFile file(folder / "tb", 0);
    path = file.path();
    StepRecord r = step_of(1);
    r.times.resize(2);
    r.times[0][TimeUse::compute] = 3, r.times[0][TimeUse::wait_dp] = 1;
    r.times[1][TimeUse::compute] = 2, r.times[1][TimeUse::data] = 2;
    file.write(r);
    r = step_of(2);
    r.loss = std::numeric_limits<double>::quiet_NaN(), r.mfu = {};
    file.write(r);
    file.write(EvalRecord{2, 2.5, 1.5e9, 0.375});
    EXPECT_EQ(file.failure(), "");
  }
  EXPECT_THAT(path.filename().string(), StartsWith("events.out.tfevents."));
  const std::vector<ReadEvent> events = EventFileReader(path).all();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[1].status, 1);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[2].time, 1.5e9 + 1);
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"train/loss", 4.25f},
                                                             {"train/lr", 1e-3f},
                                                             {"train/grad_norm", 0.5f},
                                                             {"speed/tokens_per_s", 12345.f},
                                                             {"speed/mfu", 0.375f},
                                                             {"speed/step_ms", 125.f},
                                                             {"time/compute", 0.625f},
                                                             {"time/wait_dp", 0.125f},
                                                             {"time/data", 0.25f}}));
  EXPECT_TRUE(std::isnan(events[3].scalars.at("train/loss")));
  EXPECT_FALSE(events[3].scalars.contains("speed/mfu"));
  EXPECT_EQ(events[4].scalars, (std::map<std::string, float>{{"eval/loss", 2.5f}, {"eval/accuracy", 0.375f}}));
}

TEST(EventFiles, OfARunThatResumesFollowTheOldOnesAndReplaceTheirLaterSteps) {
  TemporaryFolder folder;
  for (const std::int64_t done : {0, 10, 7}) TensorboardFile(folder / "tb", done).write(step_of(done + 1));
  const auto files = event_files(folder / "tb");
  ASSERT_EQ(files.size(), 3u) << "within one second, too";
  std::vector<std::int64_t> starts, steps;
  for (const auto& file : files) {
    const std::vector<ReadEvent> events = EventFileReader(file).all();
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[1].status, 1);
    starts.push_back(events[1].step);
    steps.push_back(events[2].step);
  }
  EXPECT_EQ(starts, (std::vector<std::int64_t>{1, 11, 8}));
  EXPECT_EQ(steps, starts);
}

TEST(EventFiles, AreWrittenDuringTheRun) {
  TemporaryFolder folder;
  TensorboardFile slow(folder / "tb", 0, std::chrono::hours(1));
  for (std::int64_t step = 1; step <= 1000; ++step) slow.write(step_of(step));
  const std::size_t bytes = std::filesystem::file_size(slow.path()), seen = EventFileReader(slow.path()).all().size();
  EXPECT_LT(seen, 1002u);
  EXPECT_LT((1002 - seen) * bytes / seen, TensorboardFile::kMostWaiting);
  TensorboardFile quick(folder / "tb", 0, std::chrono::milliseconds(0));
  for (std::int64_t step = 1; step <= 3; ++step) {
    quick.write(step_of(step));
    EXPECT_EQ(EventFileReader(quick.path()).all().back().step, step);
  }
}

TEST(EventFiles, SurviveADiskThatIsFullForAWhile) {
  TemporaryFolder folder;
  const tests::SmallDisk disk(folder / "disk", "size=64k");
  if (!disk) GTEST_SKIP() << "may not mount";
  TensorboardFile file(folder / "disk/tb", 0, std::chrono::milliseconds(0));
  disk.fill();
  for (std::int64_t step = 1; step <= 100; ++step) file.write(step_of(step));
  EXPECT_THAT(file.failure(), ::testing::HasSubstr("No space left"));
  disk.empty();
  file.flush();
  EXPECT_EQ(file.failure(), "");
  const std::vector<ReadEvent> events = EventFileReader(file.path()).all();
  ASSERT_EQ(events.size(), 102u);
  for (std::size_t i = 2; i < events.size(); ++i) EXPECT_EQ(events[i].step, static_cast<std::int64_t>(i) - 1);
}

TEST(EventFiles, ThatCannotBeMadeAreNamed) { EXPECT_THROW(TensorboardFile("/dev/null/tb", 0), EnvironmentError); }

}  // namespace
}  // namespace lockstep
