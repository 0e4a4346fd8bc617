// Writers of several ranks: their threads meet beside the training, fail together and may be used again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/rank_saves.h"
#include "tensor/meta/stream.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Communicator> own(Communicator& ranks) {
  return ranks.split([](int r) { return Place{.color = 0, .key = r}; }, "checkpoint");
}

TEST(CheckpointWriterRanks, TheyTrainOnWhileTheirThreadsWrite) {
  const TempFolder folder;
  std::latch go_on(1);
  run_ranks(3, [&](std::unique_ptr<Communicator> ranks) {
    const auto savers = own(*ranks);
    Host host;
    FakeState state;
    const Disk slow([&](std::string_view operation, const fs::path&) {
      if (operation == "write") go_on.wait();
    });
    CheckpointWriter writer({.path = folder.path()}, share(state, *ranks), *host.memory,
                            ranks->rank() == 1 ? slow : Disk(), savers.get());
    state.set(4);
    writer.save(progress_at(4), host.stream);
    state.set(77);  // training goes on, and the ranks talk
    std::int64_t ones = 1;
    for (int i = 0; i < 20; ++i) {
      ones = 1;
      ranks->all_reduce(Tensor(&ones, DType::i64, Device::cpu, {1}))->wait();
    }
    EXPECT_EQ(ones, 3);
    EXPECT_FALSE(open_newest_whole(folder.path()));
    ranks->barrier()->wait();
    if (ranks->rank() == 0) go_on.count_down();
    writer.wait();
  });
  EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 4));
}

TEST(CheckpointWriterRanks, ManySavesInARowAreEachOfTheirMoment) {
  const TempFolder folder;
  run_ranks(5, [&](std::unique_ptr<Communicator> ranks) {
    const auto savers = own(*ranks);
    Host host;
    FakeState state;
    CheckpointWriter writer({.path = folder.path(), .keep = 9}, share(state, *ranks), *host.memory, Disk(),
                            savers.get());
    for (const std::int64_t step : {1, 2, 3, 4, 5}) {
      state.set(step);
      writer.save(progress_at(step), host.stream);
      state.set(99);
    }
    writer.wait();
  });
  for (const std::int64_t step : {1, 2, 3, 4, 5})
    EXPECT_TRUE(holds(open_checkpoint(folder.path() / step_folder_name(step)), step)) << step;
}

// A disk of rank 2 that fails so many times.
Disk failing_times(const Communicator& ranks, std::atomic<int>& failures) {
  if (ranks.rank() != 2) return Disk();
  return Disk([&](std::string_view operation, const fs::path& path) {
    if (operation == "fsync" && failures.fetch_sub(1) > 0)
      throw EnvironmentError(path.string() + ": fsync failed: test");
  });
}

TEST(CheckpointWriterRanks, AFailureOfOneIsToldByAllAndAllTryAgainTogether) {
  const TempFolder folder;
  std::atomic<int> failures = 3;
  run_ranks(3, [&](std::unique_ptr<Communicator> ranks) {
    const auto savers = own(*ranks);
    Host host;
    FakeState state;
    CheckpointWriter writer({.path = folder.path()}, share(state, *ranks), *host.memory,
                            failing_times(*ranks, failures), savers.get(), {.first = 0.01, .most = 0.01});
    state.set(1);
    writer.save(progress_at(1), host.stream);
    state.set(77);
    std::vector<SaveEvent> events;
    while (events.size() < 2)
      for (SaveEvent& event : writer.events()) events.push_back(std::move(event));
    EXPECT_EQ(events[0].outcome, SaveOutcome::failed);
    EXPECT_THAT(events[0].words, HasSubstr("fsync failed: test"));
    EXPECT_EQ(events[0].words.starts_with("rank 2: "), ranks->rank() != 2) << events[0].words;
    EXPECT_EQ(events[1], (SaveEvent{1, SaveOutcome::saved, ""}));
    EXPECT_EQ(writer.wait().outcome, SaveOutcome::saved);
  });
  EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 1));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "step-00000001"));
}

// Ranks come to the next save at different moments: who comes first gives up for all.
TEST(CheckpointWriterRanks, AllGiveUpAFailingSaveForTheNextOne) {
  const TempFolder folder;
  std::atomic<int> failures = 1;
  run_ranks(3, [&](std::unique_ptr<Communicator> ranks) {
    const auto savers = own(*ranks);
    Host host;
    FakeState state;
    CheckpointWriter writer({.path = folder.path()}, share(state, *ranks), *host.memory,
                            failing_times(*ranks, failures), savers.get(), {.first = 1e6, .most = 1e6});
    state.set(1);
    writer.save(progress_at(1), host.stream);
    while (!writer.failing()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(30 * ((ranks->rank() + 2) % 3)));
    state.set(2);
    writer.save(progress_at(2), host.stream);
    EXPECT_EQ(writer.wait().outcome, SaveOutcome::saved);
  });
  EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 2));
}

TEST(CheckpointWriterRanks, WithoutRoomAllEndWithTheFailureWhenPatienceIsOver) {
  const TempFolder folder;
  std::atomic<int> failures = 1 << 30;
  run_ranks(3, [&](std::unique_ptr<Communicator> ranks) {
    const auto savers = own(*ranks);
    Host host;
    FakeState state;
    CheckpointWriter writer({.path = folder.path()}, share(state, *ranks), *host.memory,
                            failing_times(*ranks, failures), savers.get(), {.first = 0.05, .most = 1});
    state.set(1);
    writer.save(progress_at(1), host.stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * ranks->rank()));
    const SaveResult result = writer.wait(0.2);
    EXPECT_EQ(result.outcome, SaveOutcome::failed);
    EXPECT_EQ(result.words.starts_with("rank 2: "), ranks->rank() != 2) << result.words;
    ranks->barrier()->wait();  // and the ranks are of use still
  });
  EXPECT_FALSE(open_newest_whole(folder.path()));
}

TEST(CheckpointWriterRanks, ASnapshotIsOfTheRanksPartAloneAndMetaCountsTheSame) {
  Host all;
  FakeState state;
  CheckpointWriter alone({.path = ""}, state.tensors(), *all.memory);
  const std::int64_t whole = all.ledger.rows().at({Tag::workspace, "checkpoint"}).current;
  for (int rank = 0; rank < 3; ++rank) {
    Host host;
    Ledger meta_ledger;
    const auto meta_memory = make_memory(Device::meta, meta_ledger);
    std::vector<StateTensor> on_meta = state.tensors();
    for (StateTensor& t : on_meta) t.live = Tensor(nullptr, t.live.dtype(), Device::meta, t.live.shape());
    CheckpointWriter real({.path = ""}, share_of_state(state.tensors(), rank, 3), *host.memory);
    CheckpointWriter counted({.path = ""}, share_of_state(on_meta, rank, 3), *meta_memory);
    const std::int64_t taken = host.ledger.rows().at({Tag::workspace, "checkpoint"}).current;
    EXPECT_LE(std::abs(taken - whole / 3), 256 * 8 + 5 * 64);
    EXPECT_EQ(meta_ledger.current(Tag::workspace), taken);
  }
}

}  // namespace
}  // namespace lockstep
