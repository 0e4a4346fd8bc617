// Ranks that save together when something fails: all say so, by name, and what was there stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "checkpoint/all_or_none.h"
#include "checkpoint/rank_saves.h"
#include "checkpoint/shared_folder.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// What each of three ranks says of a save of step 2, one of whose disks has a hook. The ranks stay together.
std::vector<std::string> save_with(const fs::path& folder, int failing, const Disk::Hook& hook,
                                   std::int64_t write_bytes = Disk::kWriteBytes) {
  std::vector<std::string> said(3);
  run_ranks(3, [&](std::unique_ptr<Communicator> group) {
    FakeState state;
    state.set(2);
    const Disk disk = group->rank() == failing ? Disk(hook, write_bytes) : Disk({}, write_bytes);
    said[static_cast<std::size_t>(group->rank())] = failure(
        [&] { save_checkpoint({.path = folder, .keep = 1}, progress_at(2), share(state, *group), disk, group.get()); });
    group->barrier()->wait();  // the group is of use still
  });
  return said;
}

TEST(CheckpointRanksFailing, AFullDiskOfOneRankFailsAllByItsNameAndTheOldOneStays) {
  const TempFolder folder;
  save(folder.path(), 1, 1);
  const auto before = everything_in(folder.path());
  const auto said = save_with(folder.path(), 2, [](std::string_view operation, const fs::path& path) {
    if (operation == "write") throw EnvironmentError(path.string() + ": write failed: No space left on device");
  });
  const std::string words = ".partial-step-00000002/state-00002-of-00003.safetensors: write failed: No space left";
  EXPECT_THAT(said[2], AllOf(HasSubstr(words), Not(HasSubstr("rank"))));  // who runs the ranks says which it was
  for (const int rank : {0, 1}) EXPECT_THAT(said[rank], AllOf(testing::StartsWith("rank 2: /"), HasSubstr(words)));
  EXPECT_TRUE(everything_in(folder.path()) == before);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "step-00000001"));
}

TEST(CheckpointRanksFailing, AFailureAtAnyOperationOfAnyRankLeavesAWholeOne) {
  constexpr std::int64_t kWriteBytes = 256;
  int tried = 0, newest = 0, before = 0;
  for (const int rank : {0, 1, 2}) {
    for (int fail_at = 0;; ++fail_at) {
      const TempFolder folder;
      save(folder.path(), 1, 1);
      int count = 0;
      const auto said = save_with(
          folder.path(), rank,
          [&](std::string_view operation, const fs::path& path) {
            if (count++ == fail_at)
              throw EnvironmentError(path.string() + ": " + std::string(operation) + " failed: test");
          },
          kWriteBytes);
      if (count <= fail_at) {
        EXPECT_THAT(said, Each("")) << "nothing failed";
        break;
      }
      ++tried;
      const std::string where = fmt::format("rank {} operation {}", rank, fail_at);
      for (int r = 0; r < 3; ++r)
        ASSERT_THAT(said[r],
                    AllOf(HasSubstr("failed: test"), HasSubstr(r == rank ? "" : fmt::format("rank {}: ", rank))))
            << where;
      std::string damage;
      const auto found = open_newest_whole(
          folder.path(), [&](const fs::path& path, const std::string& reason) { damage += path.string() + reason; });
      ASSERT_TRUE(found) << where;
      ASSERT_EQ(damage, "") << where;
      ASSERT_TRUE(holds(*found, found->progress().step)) << where;
      (found->progress().step == 2 ? newest : before) += 1;
      for (const std::int64_t step : steps_in(folder.path()))
        ASSERT_TRUE(holds(open_checkpoint(folder.path() / step_folder_name(step)), step)) << where;
      for (const std::string& name : names_in(folder.path()))
        ASSERT_FALSE(name.starts_with(".partial") || name.ends_with(".partial")) << where << " left " << name;
      save_by(3, {.path = folder.path(), .keep = 1}, 3);
      ASSERT_THAT(names_in(folder.path()), ElementsAre("latest", "step-00000003")) << where;
      ASSERT_TRUE(holds(*open_newest_whole(folder.path()), 3)) << where;
    }
  }
  EXPECT_GT(tried, 60);
  EXPECT_GT(newest, 5);
  EXPECT_GT(before, 40);
}

// What all of the ranks, each on its own, say of pieces that do not fit together.
void expect_refused(const std::function<void(int rank, std::vector<StateTensor>&)>& change, const std::string& words) {
  const TempFolder folder;
  save(folder.path(), 1, 1);
  const auto before = everything_in(folder.path());
  std::vector<std::string> said(3);
  run_ranks(3, [&](std::unique_ptr<Communicator> group) {
    FakeState state;
    std::vector<StateTensor> pieces = share(state, *group);
    change(group->rank(), pieces);
    try {
      save_checkpoint({.path = folder.path()}, progress_at(2), pieces, Disk([](std::string_view, const fs::path& path) {
                        EXPECT_EQ(path.string().find("/state-"), std::string::npos) << "a byte was written";
                      }),
                      group.get());
    } catch (const ProgramError& error) {
      said[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  EXPECT_THAT(said, Each(HasSubstr(words)));
  EXPECT_TRUE(everything_in(folder.path()) == before);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "step-00000001"));
}

TEST(CheckpointRanksFailing, GapsAndOverlapsBetweenRanksAreRefusedBeforeAByteIsWritten) {
  expect_refused([](int rank, auto& pieces) { rank == 1 ? pieces.pop_back() : void(); }, "no rank has elements");
  expect_refused(
      [](int rank, auto& pieces) {
        if (rank != 2) return;
        pieces.back().range = flat_range(0, 0);
        pieces.back().live = pieces.back().live.slice(0, 0, 0);
      },
      "h.0.attn \"é\": no rank has elements 0 to 105");
  expect_refused([](int rank, auto& pieces) { rank == 2 ? pieces.push_back(pieces[0]) : void(); },
                 "of rank 2 are another slice's too");
  expect_refused(
      [](int rank, auto& pieces) {
        rank == 1 ? void(pieces[0].tensor.shape = {24, 37}) : void();
      },
      "ranks 0 and 1 do not agree on its shape and type");
}

TEST(CheckpointRanksFailing, RanksThatSaveDifferentStepsAreRefused) {
  const TempFolder folder;
  int refused = 0;
  std::mutex mutex;
  run_ranks(2, [&](std::unique_ptr<Communicator> group) {
    FakeState state;
    try {
      save_checkpoint({.path = folder.path()}, progress_at(1 + group->rank()), share(state, *group), Disk(),
                      group.get());
    } catch (const ProgramError& error) {
      const std::lock_guard lock(mutex);
      refused += std::string(error.what()).find("saves step") != std::string::npos;
    }
  });
  EXPECT_EQ(refused, 2);
  EXPECT_TRUE(names_in(folder.path()).empty());
}

// A host whose folder of that path is another one.
TEST(CheckpointRanksFailing, AFolderThatOneRankDoesNotSeeIsNamed) {
  for (const bool at_set_up : {true, false}) {
    const TempFolder shared, other;
    fs::create_directories(other.path() / ".partial-step-00000002");
    for (const char* name : {".partial-step-token", ".partial-step-00000002/token"})
      write_bytes(other.path() / name, "words of another run");
    std::string said;
    std::vector<std::string> others(2);
    run_ranks(3, [&](std::unique_ptr<Communicator> group) {
      const int rank = group->rank();
      const CheckpointFolder folder{.path = rank == 2 ? other.path() : shared.path(), .seen_within = 0.1};
      FakeState state;
      const auto look = [&] {
        if (at_set_up) return check_shared(folder, *group);
        save_checkpoint(folder, progress_at(2), share(state, *group), Disk(), group.get());
      };
      if (rank == 2)
        said = refusal(look, ExitCode::environment);
      else
        others[static_cast<std::size_t>(rank)] = failure(look);
    });
    EXPECT_THAT(said, AllOf(HasSubstr("token: rank 0 has written this file, but it is not to be seen from here"),
                            HasSubstr("; give the run a folder (run.out) on a file system that all hosts share")));
    EXPECT_THAT(others, Each(testing::StartsWith("rank 2: " + other.path().string())));
    EXPECT_TRUE(names_in(shared.path()).empty()) << "something is left";
  }
}

TEST(CheckpointRanksFailing, AFolderThatAllSeeIsLeftAsItWas) {
  const TempFolder folder;
  run_ranks(3, [&](std::unique_ptr<Communicator> group) { check_shared({.path = folder.path() / "new"}, *group); });
  EXPECT_THAT(names_in(folder.path()), ElementsAre("new"));
  EXPECT_TRUE(names_in(folder.path() / "new").empty());
}

TEST(CheckpointRanksFailing, ARankThatIsGoneFailsTheOthersAndTheOldOneStays) {
  const TempFolder folder;
  save(folder.path(), 1, 1);
  const auto before = everything_in(folder.path());
  const std::string said = failure([&] {
    run_ranks(3, [&](std::unique_ptr<Communicator> group) {
      if (group->rank() == 1) throw EnvironmentError("test: gone");
      FakeState state;
      save_checkpoint({.path = folder.path()}, progress_at(2), share(state, *group), Disk(), group.get());
      ADD_FAILURE() << "saved without rank 1";
    });
  });
  EXPECT_EQ(said, "rank 1: test: gone");
  EXPECT_TRUE(everything_in(folder.path()) == before);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "step-00000001"));
}

// What went wrong here says more than that somebody else is gone.
TEST(CheckpointRanksFailing, ARankThatFailsWhileAnotherIsGoneTellsItsOwnFailure) {
  std::string said;
  EXPECT_THROW(run_ranks(2,
                         [&](std::unique_ptr<Communicator> group) {
                           if (group->rank() == 1) throw EnvironmentError("test: gone");
                           const auto work = []() -> std::string { throw EnvironmentError("test: my own"); };
                           said = failure([&] { all_or_none(group.get(), work); });
                         }),
               EnvironmentError);
  EXPECT_EQ(said, "test: my own");
}

}  // namespace
}  // namespace lockstep
