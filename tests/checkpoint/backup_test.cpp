// A second folder for checkpoints: whole ones, as many as are kept, and a failure there fails no save.
#include "checkpoint/backup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/fake_state.h"
#include "support/program.h"
#include "support/run_results.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::ElementsAre;
using testing::HasSubstr;

void save_with(CheckpointBackup& backup, const fs::path& folder, std::int64_t step, const Disk& disk = Disk()) {
  FakeState state;
  state.set(step);
  save_checkpoint({.path = folder, .keep = 2, .backup = &backup}, progress_at(step), state.tensors(), disk);
}

TEST(CheckpointBackup, HasTheSameWholeCheckpointsAndNoMoreThanAreKept) {
  const TempFolder first, second;
  CheckpointBackup backup(second.path() / "made");
  for (const std::int64_t step : {1, 2, 3}) save_with(backup, first.path(), step);
  EXPECT_FALSE(backup.problem());
  EXPECT_THAT(names_in(second.path() / "made"), ElementsAre("step-00000002", "step-00000003"));
  for (const std::int64_t step : {2, 3})
    EXPECT_TRUE(holds(open_checkpoint(second.path() / "made" / step_folder_name(step)), step));
}

TEST(CheckpointBackup, ThatFailsIsToldOnceAndFailsNoSave) {
  const TempFolder first, second;
  CheckpointBackup backup(second.path());
  const Disk full([&](std::string_view operation, const fs::path& path) {
    if (operation == "write" && path.string().starts_with(second.path().string()))
      throw EnvironmentError(path.string() + ": write failed: No space left on device");
  });
  save_with(backup, first.path(), 1, full);
  EXPECT_THAT(backup.problem().value_or(""), HasSubstr("No space left on device"));
  save_with(backup, first.path(), 2, full);
  EXPECT_FALSE(backup.problem());
  EXPECT_TRUE(names_in(second.path()).empty());
  EXPECT_TRUE(holds(*open_newest_whole(first.path()), 2));
  save_with(backup, first.path(), 3);
  EXPECT_THAT(names_in(second.path()), ElementsAre("step-00000003"));
}

TEST(CheckpointBackup, OfWhatIsNotWhatWasSavedIsNotMade) {
  const TempFolder first, second;
  const fs::path saved = save(first.path(), 1);
  std::string bytes = bytes_of(saved / kStateFile);
  bytes.back() ^= 1;
  write_bytes(saved / kStateFile, bytes);
  CheckpointBackup backup(second.path());
  backup.backup(saved, 2, Disk());
  EXPECT_THAT(backup.problem().value_or(""), HasSubstr("is not what was saved"));
  EXPECT_TRUE(names_in(second.path()).empty());
}

TEST(CheckpointBackup, ServesARunWhoseOwnCheckpointsAreDamaged) {
  using tests::run_program;
  const tests::TemporaryFolder folder;
  write_bytes(folder / "tiny.toml", tests::tiny_run(6, 10));
  const std::vector<std::string> arguments{
      "train", folder / "tiny.toml", "--out", folder / "run", "--set", "train.backup=" + (folder / "second"),
      "--set", "train.save_every=2"};
  ASSERT_EQ(run_program(arguments).code, 0);
  ASSERT_EQ(names_in(folder / "second").size(), 2U);
  for (const auto& item : fs::recursive_directory_iterator(folder / "run/checkpoints"))
    if (item.path().extension() == ".safetensors") fs::resize_file(item.path(), 100);
  std::vector<std::string> again = arguments;
  again.insert(again.end(), {"--resume", "--set", "train.steps=8"});
  const tests::Outcome outcome = run_program(again);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(tests::text_of(folder / "run/log.txt"), HasSubstr("resuming from " + (folder / "second/step-00000006")));
}

}  // namespace
}  // namespace lockstep
