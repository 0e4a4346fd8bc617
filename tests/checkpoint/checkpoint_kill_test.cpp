// A process killed at any moment of a save leaves the new checkpoint or the one before, whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/fake_state.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::ElementsAre;

constexpr std::int64_t kWriteBytes = 128;  // bytes a write: many moments to be killed at

// A run that has a checkpoint of step 1 and saves steps 2 and 3. Returns after how many operations each was done.
std::pair<int, int> train(const fs::path& folder, int kill_at) {
  int count = 0;
  const Disk disk(
      [&](std::string_view, const fs::path&) {
        if (count++ == kill_at) ::raise(SIGKILL);
      },
      kWriteBytes);
  Host host;
  FakeState state;
  CheckpointWriter writer({.path = folder, .keep = 1}, state.tensors(), *host.memory, disk);
  std::pair<int, int> done;
  state.set(2);
  writer.save(progress_at(2), host.stream);
  state.set(99);  // training goes on while the thread writes
  writer.wait();
  done.first = count;
  state.set(3);
  writer.save(progress_at(3), host.stream);
  writer.wait();
  done.second = count;
  return done;
}

TEST(CheckpointKilled, AtEveryOperationLeavesTheNewOneOrTheOneBefore) {
  std::pair<int, int> points;
  {
    const TempFolder folder;
    save(folder.path(), 1, 1);
    points = train(folder.path(), -1);
  }
  ASSERT_GE(points.second, 200);
  int newest = 0, before = 0, leftovers = 0;
  for (int kill_at = 0; kill_at < points.second; ++kill_at) {
    const TempFolder folder;
    save(folder.path(), 1, 1);
    const pid_t child = ::fork();
    if (child == 0) {
      train(folder.path(), kill_at);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "operation " << kill_at;

    const std::int64_t saving = kill_at < points.first ? 2 : 3;
    std::string damage;
    const auto found = open_newest_whole(folder.path(), [&](const fs::path& path, const std::string& reason) {
      damage += path.string() + ": " + reason;
    });
    ASSERT_TRUE(found) << "operation " << kill_at << " " << damage;
    const std::int64_t step = found->progress().step;
    ASSERT_TRUE(step == saving || step == saving - 1) << "operation " << kill_at << " left step " << step;
    ASSERT_TRUE(holds(*found, step)) << "operation " << kill_at;
    // Nothing that has a checkpoint's name is half of one, though `latest` may still name the one that went.
    for (const std::int64_t each : steps_in(folder.path()))
      ASSERT_TRUE(holds(open_checkpoint(folder.path() / step_folder_name(each)), each)) << "operation " << kill_at;
    (step == saving ? newest : before) += 1;
    leftovers += names_in(folder.path()).size() != 2;

    save(folder.path(), 4, 1);
    ASSERT_THAT(names_in(folder.path()), ElementsAre("latest", "step-00000004")) << "operation " << kill_at;
    ASSERT_TRUE(holds(*open_newest_whole(folder.path()), 4));
  }
  // The test is only worth its name if both outcomes and things to clean up came about.
  EXPECT_GT(newest, 10);
  EXPECT_GT(before, 100);
  EXPECT_GT(leftovers, 100);
}

// The same moments, but the operation fails instead: the save says so, and cleans up behind itself.
TEST(CheckpointFailing, AtEveryOperationTellsAndLeavesOldOnesWhole) {
  int points = 0;
  {
    const TempFolder folder;
    save(folder.path(), 1, 1);
    save(folder.path(), 2, 1, Disk([&](std::string_view, const fs::path&) { ++points; }, kWriteBytes));
  }
  ASSERT_GE(points, 50);
  for (int fail_at = 0; fail_at < points; ++fail_at) {
    const TempFolder folder;
    save(folder.path(), 1, 1);
    int count = 0;
    const Disk disk(
        [&](std::string_view operation, const fs::path& path) {
          if (count++ == fail_at)
            throw EnvironmentError(path.string() + ": " + std::string(operation) + " failed: test");
        },
        kWriteBytes);
    ASSERT_NE(failure([&] { save(folder.path(), 2, 1, disk); }), "") << fail_at;
    const auto found = open_newest_whole(folder.path());
    ASSERT_TRUE(found) << fail_at;
    ASSERT_TRUE(holds(*found, found->progress().step)) << fail_at;
    for (const std::string& name : names_in(folder.path()))
      ASSERT_FALSE(name.starts_with(".partial") || name.ends_with(".partial")) << fail_at << " left " << name;
    save(folder.path(), 3, 1);
    ASSERT_THAT(names_in(folder.path()), ElementsAre("latest", "step-00000003")) << fail_at;
  }
}

// A step that is there already and is saved again is never absent in between.
TEST(CheckpointKilled, WhileReplacingAStepLeavesOneOrTheOther) {
  for (int kill_at = 0;; ++kill_at) {
    const TempFolder folder;
    save(folder.path(), 5, 1);
    const pid_t child = ::fork();
    if (child == 0) {
      int count = 0;
      save(folder.path(), 5, 1, Disk([&](std::string_view, const fs::path&) {
             if (count++ == kill_at) ::raise(SIGKILL);
           }));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const auto found = open_newest_whole(folder.path());
    ASSERT_TRUE(found) << "operation " << kill_at;
    ASSERT_TRUE(holds(*found, 5)) << "operation " << kill_at;
    if (WIFEXITED(status)) {
      EXPECT_GT(kill_at, 10);
      break;
    }
  }
}

}  // namespace
}  // namespace lockstep
