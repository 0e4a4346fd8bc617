// Saving goes on beside training: save() returns early, later changes do not reach the disk, errors come to light.
#include "checkpoint/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "checkpoint/fake_state.h"
#include "tensor/meta/stream.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(CheckpointWriter, ReturnsWhileTheDiskIsStillAtWorkAndKeepsWhatWasThen) {
  const TempFolder folder;
  Host host;
  FakeState state(3);
  std::latch reached(1), go_on(1);
  std::atomic<bool> first = true;
  const Disk disk([&](std::string_view, const fs::path&) {
    if (!first.exchange(false)) return;
    reached.count_down();
    go_on.wait();
  });
  CheckpointWriter writer({.path = folder.path()}, state.tensors(), *host.memory, disk);
  state.set(4);
  writer.save(progress_at(4), host.stream);  // would never return if it waited for the disk
  reached.wait();                            // the thread is at its first operation
  EXPECT_FALSE(find_newest_whole(folder.path()));
  state.set(77);  // training goes on
  go_on.count_down();
  writer.wait();
  EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 4));
}

TEST(CheckpointWriter, TheNextSaveWaitsForTheOneInFlight) {
  const TempFolder folder;
  Host host;
  FakeState state;
  std::vector<std::string> mkdirs;  // written by one thread after the other
  CheckpointWriter writer({.path = folder.path(), .keep = 9}, state.tensors(), *host.memory,
                          Disk([&](std::string_view operation, const fs::path& path) {
                            if (operation == "mkdir") mkdirs.push_back(path.filename().string());
                          }));
  for (const std::int64_t step : {1, 2, 3, 4, 5}) {
    state.set(step);
    writer.save(progress_at(step), host.stream);
    state.set(99);
  }
  writer.wait();
  EXPECT_EQ(mkdirs.size(), 5u);
  for (const std::int64_t step : {1, 2, 3, 4, 5})
    EXPECT_TRUE(holds(open_checkpoint(folder.path() / step_folder_name(step)), step)) << step;
}

TEST(CheckpointWriter, AFailureSurfacesOnceAtTheNextCall) {
  const TempFolder folder;
  Host host;
  FakeState state;
  std::atomic<int> failures = 2;
  CheckpointWriter writer({.path = folder.path()}, state.tensors(), *host.memory,
                          Disk([&](std::string_view operation, const fs::path& path) {
                            if (operation == "fsync" && failures.fetch_sub(1) > 0)
                              throw EnvironmentError(path.string() + ": fsync failed: test");
                          }));
  state.set(1);
  writer.save(progress_at(1), host.stream);
  EXPECT_THAT(failure([&] { writer.wait(); }), HasSubstr("fsync failed: test"));
  writer.wait();  // said once
  writer.save(progress_at(1), host.stream);
  EXPECT_THAT(failure([&] { writer.save(progress_at(1), host.stream); }), HasSubstr("fsync failed: test"));
  writer.save(progress_at(1), host.stream);
  writer.wait();
  EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 1));
}

TEST(CheckpointWriter, ItsEndWaitsAndNeverThrows) {
  const TempFolder folder;
  Host host;
  FakeState state;
  state.set(6);
  {
    CheckpointWriter writer({.path = folder.path()}, state.tensors(), *host.memory);
    writer.save(progress_at(6), host.stream);
  }
  EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 6));
  {
    CheckpointWriter writer({.path = folder.path()}, state.tensors(), *host.memory,
                            Disk([](std::string_view, const fs::path&) { throw EnvironmentError("test"); }));
    writer.save(progress_at(7), host.stream);
  }
  EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 6));
}

TEST(CheckpointWriter, TakesItsRoomOnceAndMetaCountsTheSame) {
  const TempFolder folder;
  Host host;
  Ledger meta_ledger;
  const auto meta_memory = make_memory(Device::meta, meta_ledger);
  meta::Stream meta_stream;
  FakeState state(3);
  std::vector<StateTensor> on_meta = state.tensors();
  for (StateTensor& t : on_meta) t.live = Tensor(nullptr, t.live.dtype(), Device::meta, t.live.shape());

  const std::int64_t before = host.ledger.current(Tag::workspace);
  CheckpointWriter real({.path = folder.path()}, state.tensors(), *host.memory);
  CheckpointWriter counted({.path = folder.path() / "meta"}, on_meta, *meta_memory);
  const std::int64_t taken = host.ledger.current(Tag::workspace) - before;
  EXPECT_GT(taken, 37 * 24 * 10);
  EXPECT_EQ(meta_ledger.current(Tag::workspace), taken);
  EXPECT_EQ(host.ledger.rows().at({Tag::workspace, "checkpoint"}).current, taken);

  const std::int64_t allocations = host.ledger.allocations();
  state.set(1);
  real.save(progress_at(1), host.stream);
  real.wait();
  counted.save(progress_at(1), meta_stream);
  counted.wait();
  EXPECT_EQ(host.ledger.allocations(), allocations);
  EXPECT_FALSE(fs::exists(folder.path() / "meta"));
}

}  // namespace
}  // namespace lockstep
