// Writers of several ranks: their threads meet beside the training, fail together and may be used again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>

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
    EXPECT_FALSE(find_newest_whole(folder.path()));
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

TEST(CheckpointWriterRanks, AFailureSurfacesOnceOnEveryRankAndTheNextSaveWorks) {
  const TempFolder folder;
  run_ranks(3, [&](std::unique_ptr<Communicator> ranks) {
    const auto savers = own(*ranks);
    Host host;
    FakeState state;
    std::atomic<int> failures = ranks->rank() == 2 ? 1 : 0;
    CheckpointWriter writer({.path = folder.path()}, share(state, *ranks), *host.memory,
                            Disk([&](std::string_view operation, const fs::path& path) {
                              if (operation == "fsync" && failures.fetch_sub(1) > 0)
                                throw EnvironmentError(path.string() + ": fsync failed: test");
                            }),
                            savers.get());
    state.set(1);
    writer.save(progress_at(1), host.stream);
    const std::string said = failure([&] { writer.save(progress_at(2), host.stream); });
    EXPECT_THAT(said, HasSubstr("fsync failed: test"));
    EXPECT_EQ(said.starts_with("rank 2: "), ranks->rank() != 2) << said;
    writer.wait();  // said once
    state.set(2);
    writer.save(progress_at(2), host.stream);
    writer.wait();
  });
  EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 2));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "step-00000002"));
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
