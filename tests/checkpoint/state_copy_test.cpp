// Copies of the state in memory: two generations, of which one is always complete, whatever is killed when.
#include "checkpoint/state_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/fake_state.h"
#include "checkpoint/state_share.h"
#include "comm/threads/run_ranks.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::ElementsAre;

constexpr std::int64_t kWriteBytes = 128;  // bytes a write: many moments to be killed at

// A copy of each step by this many ranks, each of which has a share.
void copy_steps(const fs::path& folder, int ranks, std::int64_t first, std::int64_t last, std::int64_t committed = 0,
                const Disk& disk = Disk::in_memory({}, kWriteBytes)) {
  const auto body = [&](Communicator* world) {
    CopyGenerations generations = begin_copies(folder, committed, disk, world);
    FakeState state;
    const int rank = world ? world->rank() : 0;
    for (std::int64_t step = first; step <= last; ++step) {
      state.set(step);
      save_copy({.path = folder, .copies = &generations}, progress_at(step),
                share_of_state(state.tensors(), rank, ranks), disk, world);
    }
  };
  if (ranks == 1) return body(nullptr);
  run_ranks(ranks, [&](std::unique_ptr<Communicator> world) { body(world.get()); });
}

TEST(StateCopy, IsACheckpointOfTheMoment) {
  for (const int ranks : {1, 3}) {
    const TempFolder folder;
    copy_steps(folder.path(), ranks, 1, 5);
    EXPECT_THAT(names_in(folder.path()), ElementsAre("step-00000004", "step-00000005"));
    for (const std::int64_t step : {4, 5})
      EXPECT_TRUE(holds(open_checkpoint(folder.path() / step_folder_name(step)), step)) << ranks;
  }
}

TEST(StateCopy, TakesTheMemoryOfTwoGenerationsAtEveryMoment) {
  const TempFolder folder;
  FakeState state;
  const CopyBytes expected = copy_bytes(state.tensors());
  std::int64_t most = 0;
  const Disk watched = Disk::in_memory(
      [&](std::string_view, const fs::path&) {
        std::int64_t bytes = 0;
        for (const auto& item : fs::recursive_directory_iterator(folder.path()))
          if (item.path().extension() == ".safetensors") bytes += static_cast<std::int64_t>(item.file_size());
        most = std::max(most, bytes);
      },
      kWriteBytes);
  copy_steps(folder.path(), 1, 1, 6, 0, watched);
  constexpr std::int64_t kHeaders = 4096;  // of the two files
  EXPECT_GE(most, expected.folder);
  EXPECT_LE(most, expected.folder + kHeaders);
}

TEST(StateCopy, NothingIsSynced) {
  const TempFolder folder;
  int synced = 0;
  copy_steps(folder.path(), 1, 1, 3, 0, Disk::in_memory([&](std::string_view operation, const fs::path&) {
               synced += operation == "fsync" || operation == "fadvise";
             }));
  EXPECT_EQ(synced, 0);
}

TEST(StateCopy, KilledAtEveryOperationLeavesTheNewOneOrTheOneBefore) {
  const auto count_operations = [](int kill_at, const fs::path& folder) {
    int count = 0;
    copy_steps(folder, 1, 4, 6, 3,
               Disk::in_memory(
                   [&](std::string_view, const fs::path&) {
                     if (count++ == kill_at) ::raise(SIGKILL);
                   },
                   kWriteBytes));
    return count;
  };
  int points = 0;
  {
    const TempFolder folder;
    copy_steps(folder.path(), 1, 1, 3);
    points = count_operations(-1, folder.path());
  }
  ASSERT_GE(points, 200);
  std::int64_t newest = 3;
  int leftovers = 0;
  for (int kill_at = 0; kill_at < points; ++kill_at) {
    const TempFolder folder;
    copy_steps(folder.path(), 1, 1, 3);
    const pid_t child = ::fork();
    if (child == 0) {
      count_operations(kill_at, folder.path());
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "operation " << kill_at;
    const auto found = open_newest_whole(folder.path());
    ASSERT_TRUE(found) << "operation " << kill_at;
    ASSERT_GE(found->progress().step, newest) << "operation " << kill_at;  // never older than after an earlier kill
    ASSERT_TRUE(holds(*found, found->progress().step)) << "operation " << kill_at;
    newest = found->progress().step;
    for (const std::string& name : names_in(folder.path())) leftovers += name.starts_with(".partial");

    // Whoever resumes from it continues the copies, and nothing of the killed one stays.
    copy_steps(folder.path(), 1, newest + 1, newest + 2, newest);
    ASSERT_THAT(names_in(folder.path()), ElementsAre(step_folder_name(newest + 1), step_folder_name(newest + 2)));
    ASSERT_TRUE(holds(*open_newest_whole(folder.path()), newest + 2));
  }
  EXPECT_EQ(newest, 5);
  EXPECT_GT(leftovers, 100);
}

TEST(StateCopy, OneThatFailsAtAnyOperationOfAnyRankLeavesTheOneBefore) {
  constexpr int kRanks = 3;
  for (int failing = 0; failing < kRanks; ++failing)
    for (int fail_at = 0; fail_at < 60; fail_at += 7) {
      const TempFolder folder;
      run_ranks(kRanks, [&](std::unique_ptr<Communicator> ranks) {
        Communicator& world = *ranks;
        int count = 0;
        bool fails = false;
        const Disk disk = Disk::in_memory(
            [&](std::string_view, const fs::path& path) {
              if (fails && count++ == fail_at) throw EnvironmentError(path.string() + ": write failed: test");
            },
            kWriteBytes);
        CopyGenerations generations = begin_copies(folder.path(), 0, disk, &world);
        FakeState state;
        const auto copy = [&](std::int64_t step) {
          state.set(step);
          return try_save({.path = folder.path(), .copies = &generations}, progress_at(step),
                          share_of_state(state.tensors(), world.rank(), kRanks), disk, &world);
        };
        ASSERT_EQ(copy(1).outcome, SaveOutcome::saved);
        ASSERT_EQ(copy(2).outcome, SaveOutcome::saved);
        fails = world.rank() == failing;
        const SaveResult result = copy(3);
        fails = false;
        const std::int64_t whole = result.outcome == SaveOutcome::saved ? 3 : 2;
        ASSERT_EQ(generations.committed, whole);
        ASSERT_TRUE(holds(open_checkpoint(folder.path() / step_folder_name(whole)), whole));
        ASSERT_EQ(copy(4).outcome, SaveOutcome::saved);
      });
      EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 4));
    }
}

TEST(StateCopy, AFlippedBitIsNoticedAndTheOlderOneTaken) {
  const TempFolder folder;
  copy_steps(folder.path(), 2, 1, 2);
  const fs::path file = folder.path() / "step-00000002" / "state-00001-of-00002.safetensors";
  std::string bytes = bytes_of(file);
  bytes[bytes.size() - 3] ^= 4;
  write_bytes(file, bytes);
  EXPECT_EQ(open_newest_whole(folder.path())->progress().step, 1);
}

// Folders of two hosts: each has the files of its own ranks, and the same manifest.
TEST(StateCopy, EveryHostHasItsOwnRanksFilesAndTheWholeManifest) {
  const TempFolder one, two;
  run_ranks(3, [&](std::unique_ptr<Communicator> ranks) {
    Communicator& world = *ranks;
    const fs::path& here = world.rank() < 2 ? one.path() : two.path();
    CopyGenerations generations = begin_copies(here, 0, Disk::in_memory(), &world);
    EXPECT_EQ(generations.ranks_here, world.rank() < 2 ? 2 : 1);
    EXPECT_EQ(generations.first_here, world.rank() != 1);
    FakeState state;
    for (std::int64_t step = 1; step <= 3; ++step) {
      state.set(step);
      save_copy({.path = here, .copies = &generations}, progress_at(step),
                share_of_state(state.tensors(), world.rank(), 3), Disk::in_memory(), &world);
    }
  });
  const std::string step = "step-00000003";
  EXPECT_THAT(names_in(one.path() / step),
              ElementsAre("manifest.json", "state-00000-of-00003.safetensors", "state-00001-of-00003.safetensors"));
  EXPECT_THAT(names_in(two.path() / step), ElementsAre("manifest.json", "state-00002-of-00003.safetensors"));
  EXPECT_EQ(bytes_of(one.path() / step / kManifestName), bytes_of(two.path() / step / kManifestName));
  EXPECT_FALSE(open_newest_whole(one.path()));
  const std::string third = "state-00002-of-00003.safetensors";
  fs::copy_file(two.path() / step / third, one.path() / step / third);
  EXPECT_TRUE(holds(*open_newest_whole(one.path()), 3));
}

}  // namespace
}  // namespace lockstep
