// Which checkpoints a save removes: only whole ones, and only those beyond `keep` whole ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/fake_state.h"
#include "checkpoint/find_checkpoint.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void damage(const fs::path& checkpoint) {
  std::string bytes = bytes_of(checkpoint / kStateFile);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_bytes(checkpoint / kStateFile, bytes);
}

class CheckpointKeep : public testing::Test {
 protected:
  void save_step(std::int64_t step, std::int64_t keep, const Disk& disk = Disk(), const std::string& more = "") {
    FakeState state;
    state.set(step);
    Progress progress = progress_at(step);
    progress.run_file += more;
    save_checkpoint({.path = folder_.path(), .keep = keep, .whole = &whole_}, progress, state.tensors(), disk);
  }
  void save_checked(std::int64_t step, std::int64_t keep) { save_step(step, keep, Disk(), "[run]\ncheck_state = 5\n"); }
  void save_unchecked(std::int64_t step, std::int64_t keep) {
    save_step(step, keep, Disk(), "[run]\ncheck_state = 0\n");
  }
  fs::path path(std::int64_t step) const { return folder_.path() / step_folder_name(step); }

  TempFolder folder_;
  WholeCheckpoints whole_;  // of one process
};

TEST_F(CheckpointKeep, ADamagedOneCountsNotAndIsNotRemoved) {
  for (const std::int64_t step : {1, 2}) save_step(step, 2);
  damage(path(2));
  save_step(3, 2);
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(1, 2, 3)) << "1 is the second whole one";
  save_step(4, 2);
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(2, 3, 4)) << "1 goes, 2 was not replaced";
  save_step(5, 1);
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(2, 5));
}

// A later run of the folder does not check its state: it may hold a flipped bit, and takes no place of what was
// checked.
TEST_F(CheckpointKeep, StateThatNobodyCheckedPushesOutNoneThatWas) {
  for (const std::int64_t step : {1, 2, 3}) save_checked(step, 2);
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(2, 3));
  for (const std::int64_t step : {4, 5, 6}) save_unchecked(step, 2);
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(2, 3, 5, 6));
  whole_ = {};  // another process
  save_unchecked(7, 2);
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(2, 3, 6, 7));
  save_checked(8, 2);
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(3, 7, 8)) << "2 is the third checked one, 6 the third of all";
  save_checked(9, 2);
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(8, 9));
  save_unchecked(10, 1);
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(9, 10));
}

TEST_F(CheckpointKeep, WhatAnotherProcessLeftIsReadBeforeItCounts) {
  for (const std::int64_t step : {1, 2, 3}) save_step(step, 9);
  damage(path(3));
  fs::remove(path(2) / "manifest.json");
  whole_ = {};
  save_step(4, 2);
  EXPECT_THAT(steps_in(folder_.path()), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(holds(open_checkpoint(path(1)), 1));
}

TEST_F(CheckpointKeep, ADamagedOneIsReplacedByASaveOfItsStep) {
  for (const std::int64_t step : {1, 2}) save_step(step, 2);
  damage(path(2));
  save_step(2, 2);
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("latest", "step-00000001", "step-00000002"));
  EXPECT_TRUE(holds(open_checkpoint(path(2)), 2));
}

TEST_F(CheckpointKeep, OneThatIsReplacedStaysWhenTheNewOneDoesNotReadBack) {
  save_step(2, 1);
  bool done = false;
  const Disk lies([&](std::string_view operation, const fs::path& file) {
    if (operation == "fadvise" && file.filename() == kStateFile && !std::exchange(done, true))
      damage(file.parent_path());
  });
  EXPECT_THAT(failure([&] { save_step(2, 1, lies); }), HasSubstr("does not read back"));
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("latest", "step-00000002"));
  EXPECT_TRUE(holds(open_checkpoint(path(2)), 2));
}

// `latest` names what was completed: so a first save that did not read back leaves no trace of having been.
TEST_F(CheckpointKeep, OneThatDoesNotReadBackIsNotNamed) {
  bool done = false;
  const Disk lies([&](std::string_view operation, const fs::path& file) {
    if (operation == "fadvise" && file.filename() == kStateFile && !std::exchange(done, true))
      damage(file.parent_path());
  });
  EXPECT_THAT(failure([&] { save_step(1, 1, lies); }), HasSubstr("does not read back"));
  EXPECT_THAT(names_in(folder_.path()), ElementsAre());
  save_step(1, 2);
  done = false;
  EXPECT_THAT(failure([&] { save_step(2, 2, lies); }), HasSubstr("does not read back"));
  EXPECT_EQ(bytes_of(folder_.path() / "latest"), "step-00000001\n");
}

// What was read is not read again at each save: reading a terabyte to remove one would be dear.
TEST_F(CheckpointKeep, AWholeOneIsReadOnceUnlessItsFilesChange) {
  save_step(1, 9);
  EXPECT_TRUE(whole_.is_whole(path(1)));
  const auto when = fs::last_write_time(path(1) / kStateFile);
  damage(path(1));
  fs::last_write_time(path(1) / kStateFile, when);  // the time of change tells all the same
  EXPECT_FALSE(whole_.is_whole(path(1)));
  fs::remove_all(path(1));
  EXPECT_FALSE(whole_.is_whole(path(1)));
}

TEST_F(CheckpointKeep, ARunThatResumesBlindlyIsToldWhereAllAreDamaged) {
  EXPECT_FALSE(find_own_checkpoint(folder_.path() / "absent"));
  // A save that was killed: never completed.
  fs::create_directories(folder_.path() / ".partial-step-00000001");
  write_bytes(folder_.path() / ".partial-step-00000001" / kStateFile, "half");
  write_bytes(folder_.path() / "latest.partial", "step");
  EXPECT_FALSE(find_own_checkpoint(folder_.path()));
  for (const std::int64_t step : {1, 2}) save_step(step, 2);
  damage(path(2));
  EXPECT_TRUE(holds(*find_own_checkpoint(folder_.path()), 1));
  fs::remove(path(1) / "manifest.json");
  const auto before = everything_in(folder_.path());
  const auto told = AllOf(HasSubstr("step-00000001 ("), HasSubstr("step-00000002 ("));
  EXPECT_THAT(refusal([&] { find_own_checkpoint(folder_.path()); }), AllOf(told, HasSubstr("; put a copy")));
  EXPECT_THAT(refusal([&] { require_checkpoint(folder_.path()); }), told);
  EXPECT_TRUE(everything_in(folder_.path()) == before);
  // `latest` was written by a save that was completed, even where nothing else is left of it.
  for (const std::int64_t step : {1, 2}) fs::remove_all(path(step));
  EXPECT_THAT(refusal([&] { find_own_checkpoint(folder_.path()); }), HasSubstr("step-00000002 ("));
}

}  // namespace
}  // namespace lockstep
