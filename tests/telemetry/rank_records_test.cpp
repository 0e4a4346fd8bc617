// A rank's step records: sampled, bounded, and resumed as they were.
#include "telemetry/rank_records.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/program.h"
#include "support/run_results.h"
#include "support/small_disk.h"
#include "telemetry/rank_folder.h"

namespace lockstep::tests {
namespace {

constexpr std::int64_t kBatchOfLines = RankRecords::kLinesBeforeDoubling;

std::string record_line(std::int64_t step) { return "{\"step\":" + std::to_string(step) + "}"; }

// As a run does: formats only what is wanted.
void record_steps(RankRecords& records, std::int64_t first, std::int64_t last) {
  for (std::int64_t step = first; step <= last; ++step)
    if (records.wants(step)) records.write(step, record_line(step));
}

// Of rank 3; every line must be whole.
std::vector<std::int64_t> recorded_steps(const std::filesystem::path& run) {
  const std::string text = text_of(rank_file(run, 3, "jsonl"));
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  std::vector<std::int64_t> steps;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    steps.push_back(std::stoll(line.substr(8)));
    EXPECT_EQ(line, record_line(steps.back()));
  }
  return steps;
}

TEST(RankRecords, AMillionStepsAreFiveBatchesOfLines) {
  const TemporaryFolder run;
  {
    RankRecords records(run.path(), 3);
    record_steps(records, 1, 1'000'000);
    EXPECT_EQ(records.interval(), 16);
    EXPECT_EQ(records.lines(), 4 * kBatchOfLines + (1'000'000 - 15 * kBatchOfLines) / 16);
  }
  const std::vector<std::int64_t> steps = recorded_steps(run.path());
  ASSERT_EQ(std::ssize(steps), 4 * kBatchOfLines + (1'000'000 - 15 * kBatchOfLines) / 16);
  std::int64_t wanted = 0;
  for (std::int64_t i = 0; i < std::ssize(steps); ++i) {
    wanted += std::int64_t{1} << i / kBatchOfLines;
    ASSERT_EQ(steps[static_cast<std::size_t>(i)], wanted) << i;
  }
}

TEST(RankRecords, TheFirstStepGivenAndThenEveryTenthAreRecorded) {
  const TemporaryFolder run;
  {
    RankRecords records(run.path(), 3, {.every = 10});
    for (std::int64_t step = 13; step <= 45; ++step) {
      EXPECT_EQ(records.wants(step), step == 13 || step % 10 == 0) << step;
      records.write(step, record_line(step));  // whether wanted or not
    }
    EXPECT_EQ(text_of(run.path() / "ranks/rank-00003.jsonl").size(), 4 * 12u) << "not on disk while the run lasts";
  }
  EXPECT_EQ(recorded_steps(run.path()), (std::vector<std::int64_t>{13, 20, 30, 40}));
}

TEST(RankRecords, ResumingKeepsTheLinesUpToTheCheckpointAndTheirInterval) {
  const TemporaryFolder run;
  const std::int64_t end = 3 * kBatchOfLines + 5000;  // two batches of lines, and some of the third
  {
    RankRecords records(run.path(), 3);
    record_steps(records, 1, end);
    EXPECT_EQ(records.interval(), 4);
  }
  const std::vector<std::int64_t> all = recorded_steps(run.path());
  std::ofstream(rank_file(run.path(), 3, "jsonl"), std::ios::app) << "{\"step\":7,\"unfinished\":1}";
  const auto up_to = [&](std::int64_t last) {
    std::vector<std::int64_t> steps = all;
    std::erase_if(steps, [&](std::int64_t step) { return step > last; });
    return steps;
  };
  const std::int64_t second = kBatchOfLines + 1000;  // of the second batch
  {
    RankRecords records(run.path(), 3, {.last_step = second});
    EXPECT_EQ(records.interval(), 2);
    EXPECT_EQ(records.lines(), kBatchOfLines + 500);
    EXPECT_EQ(recorded_steps(run.path()), up_to(second));
    record_steps(records, second + 1, end);
    EXPECT_EQ(records.interval(), 4);
  }
  // The first step after the checkpoint is recorded too; else it is what a run without a stop records.
  std::vector<std::int64_t> again = recorded_steps(run.path());
  EXPECT_EQ(std::erase(again, second + 1), 1u);
  EXPECT_EQ(std::vector(again.begin(), again.begin() + 2 * kBatchOfLines - 1),
            std::vector(all.begin(), all.begin() + 2 * kBatchOfLines - 1));
  {
    RankRecords records(run.path(), 3, {.last_step = 1000});
    EXPECT_EQ(records.interval(), 1);
    EXPECT_EQ(recorded_steps(run.path()), up_to(1000));
  }
  { RankRecords records(run.path(), 3, {.last_step = 0}); }
  EXPECT_EQ(text_of(rank_file(run.path(), 3, "jsonl")), "");
}

TEST(RankRecords, WhatIsNoRecordIsDroppedWhenResuming) {
  const TemporaryFolder run;
  std::filesystem::create_directory(run / "ranks");
  std::ofstream(rank_file(run.path(), 3, "jsonl"))
      << "{\"step\":1}\n\n[1]\n{\"step\":\"2\"}\n{\"step\":2.5}\n{}\n{\"step\":18446744073709551615}\n\xff\n"
      << "{\"step\":2\n{\"step\":2}\n"
      << std::string(100'000, '[') << "\n{\"step\":4}\n";
  RankRecords records(run.path(), 3, {.last_step = 3});
  EXPECT_EQ(records.lines(), 2);
  EXPECT_EQ(recorded_steps(run.path()), (std::vector<std::int64_t>{1, 2}));
}

TEST(RankRecords, AFullDiskLosesNoLineWithinTheBound) {
  const TemporaryFolder folder;
  const SmallDisk disk(folder.path() / "disk", "size=256k");
  if (!disk) GTEST_SKIP() << "this user may not mount";
  const std::filesystem::path run = folder.path() / "disk/run";
  {
    RankRecords records(run, 3, {.most_kept = 8 << 10});
    record_steps(records, 1, 10);
    disk.fill();
    record_steps(records, 11, 700);  // what the file's last block has no room for is kept
    EXPECT_NE(records.failure().find("rank-00003.jsonl: write failed: No space left on device"), std::string::npos);
    EXPECT_EQ(records.dropped(), 0);
    EXPECT_EQ(records.lines(), 700);
    record_steps(records, 701, 5000);
    EXPECT_GT(records.dropped(), 3000);
    EXPECT_EQ(records.lines() + records.dropped(), 5000);
    disk.empty();
    record_steps(records, 5001, 5002);
    EXPECT_EQ(records.failure(), "");
  }
  std::vector<std::int64_t> steps = recorded_steps(run);
  EXPECT_GT(steps.size(), 702u);
  for (std::size_t i = 0; i < 700; ++i) ASSERT_EQ(steps[i], static_cast<std::int64_t>(i) + 1);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  RankRecords resumed(run, 3, {.last_step = 5002});
  EXPECT_EQ(resumed.lines(), std::ssize(steps));
}

TEST(RankRecords, AFullDiskIsNoErrorInTheDestructor) {
  const TemporaryFolder folder;
  const SmallDisk disk(folder.path() / "disk", "size=256k");
  if (!disk) GTEST_SKIP() << "this user may not mount";
  RankRecords records(folder.path() / "disk", 3);
  disk.fill();
  record_steps(records, 1, 5000);
  EXPECT_NE(records.failure(), "");
}

TEST(RankRecords, WhatCannotBeOpenedIsNamed) {
  const TemporaryFolder run;
  EXPECT_THROW(RankRecords(run.path(), -1), ProgramError);
  EXPECT_THROW(RankRecords(run.path(), 3, {.every = 0}), ProgramError);
  std::filesystem::remove_all(run / "ranks");
  std::ofstream(run / "ranks") << "a file";
  try {
    RankRecords records(run.path(), 3);
    FAIL();
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("/ranks: mkdir failed: "), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::tests
