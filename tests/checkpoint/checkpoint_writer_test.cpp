// Saving goes on beside training: save() returns early, later changes do not reach the disk, errors come to light.
#include "checkpoint/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <limits>
#include <thread>

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
  EXPECT_FALSE(open_newest_whole(folder.path()));
  state.set(77);  // training goes on
  go_on.count_down();
  writer.wait();
  EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 4));
}

// The cpu stands for a device here: the thread reads the room while what was copied into it changes.
TEST(CheckpointWriter, SavesFromRoomBesideTheTensorsWhatWasThen) {
  const TempFolder folder;
  Host host;
  Ledger ledger;
  const auto device = make_memory(Device::cpu, ledger);
  FakeState state(3);
  const std::int64_t scratch = host.ledger.current(Tag::workspace);
  {
    CheckpointWriter writer({.path = folder.path(), .keep = 9}, state.tensors(), *host.memory, Disk(), nullptr, {},
                            device.get());
    EXPECT_EQ(ledger.current(Tag::workspace), host.ledger.current(Tag::workspace) - scratch);
    for (const std::int64_t step : {1, 2, 3}) {
      state.set(step);
      writer.save(progress_at(step), host.stream);
      EXPECT_EQ(writer.being_read(), nullptr);
      state.set(99);
    }
    writer.wait();
  }
  for (const std::int64_t step : {1, 2, 3})
    EXPECT_TRUE(holds(open_checkpoint(folder.path() / step_folder_name(step)), step)) << step;
  EXPECT_EQ(ledger.current(), 0);
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

// A disk whose syncs fail until somebody makes room.
struct FullDisk {
  std::atomic<bool> full = true;
  std::atomic<int> tries = 0;
  Disk disk{[this](std::string_view operation, const fs::path& path) {
    if (operation == "mkdir" && path.filename().string().starts_with(".partial")) ++tries;
    if (operation == "fsync" && full) throw EnvironmentError(path.string() + ": fsync failed: no room");
  }};
};

template <class Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

constexpr RetryPauses kShort{.first = 0.005, .most = 0.02}, kNever{.first = 1e6, .most = 1e6};

TEST(CheckpointWriter, ASaveThatFailsIsToldOnceAndTriedAgainFromItsSnapshotUntilThereIsRoom) {
  const TempFolder folder;
  Host host;
  FakeState state;
  FullDisk full;
  CheckpointWriter writer({.path = folder.path()}, state.tensors(), *host.memory, full.disk, nullptr, kShort);
  state.set(1);
  const std::int64_t allocations = host.ledger.allocations();
  writer.save(progress_at(1), host.stream);
  state.set(2);  // training goes on
  ASSERT_TRUE(soon([&] { return full.tries >= 4; }));
  EXPECT_TRUE(writer.failing());
  std::vector<SaveEvent> events = writer.events();
  ASSERT_EQ(events.size(), 1u) << "the same words are told once";
  EXPECT_EQ(events[0].step, 1);
  EXPECT_EQ(events[0].outcome, SaveOutcome::failed);
  EXPECT_THAT(events[0].words, HasSubstr("fsync failed: no room"));
  EXPECT_FALSE(open_newest_whole(folder.path()));
  full.full = false;
  ASSERT_TRUE(soon([&] { return !writer.failing(); })) << "by itself";
  EXPECT_EQ(writer.events(), (std::vector<SaveEvent>{{1, SaveOutcome::saved, ""}}));
  EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 1)) << "of its moment, not of now";
  EXPECT_EQ(host.ledger.allocations(), allocations);
}

TEST(CheckpointWriter, TheNextSaveTakesThePlaceOfOneThatIsFailing) {
  const TempFolder folder;
  Host host;
  FakeState state;
  FullDisk full;
  CheckpointWriter writer({.path = folder.path()}, state.tensors(), *host.memory, full.disk, nullptr, kNever);
  state.set(1);
  writer.save(progress_at(1), host.stream);
  ASSERT_TRUE(soon([&] { return writer.failing(); }));
  full.full = false;
  state.set(2);
  writer.save(progress_at(2), host.stream);  // would wait for a million seconds if it did not give up
  EXPECT_EQ(writer.wait().outcome, SaveOutcome::saved);
  EXPECT_EQ(steps_in(folder.path()), std::vector<std::int64_t>{2});
  EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 2));
}

TEST(CheckpointWriter, WhoWaitsTriesAtOnceAndForAsLongAsItsPatience) {
  const TempFolder folder;
  Host host;
  FakeState state;
  FullDisk full;
  CheckpointWriter writer({.path = folder.path()}, state.tensors(), *host.memory, full.disk, nullptr,
                          {.first = 0.02, .most = 1e6});
  state.set(1);
  writer.save(progress_at(1), host.stream);
  ASSERT_TRUE(soon([&] { return writer.failing(); }));
  // Without patience: once more, and then the failure, each time it is asked.
  const int before = full.tries;
  const SaveResult none = writer.wait();
  EXPECT_EQ(none.outcome, SaveOutcome::failed);
  EXPECT_THAT(none.words, HasSubstr("no room"));
  EXPECT_LE(full.tries - before, 3);
  EXPECT_EQ(writer.wait().outcome, SaveOutcome::failed);
  // With some: again and again, whatever the pause has grown to.
  writer.save(progress_at(1), host.stream);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(writer.wait(0.3).outcome, SaveOutcome::failed);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(250));
  EXPECT_GE(full.tries - before, 6);
  // And it succeeds as soon as there is room.
  writer.save(progress_at(1), host.stream);
  std::thread room([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    full.full = false;
  });
  EXPECT_EQ(writer.wait(1e6).outcome, SaveOutcome::saved);
  room.join();
}

TEST(CheckpointWriter, AStateThatIsRefusedIsNotTriedAgain) {
  const TempFolder folder;
  Host host;
  std::vector<float> values(8, 1.0f);
  const StateTensor weight{"weight", {"w", {8}}, flat_range(0, 8), Tensor(values.data(), DType::f32, Device::cpu, {8})};
  CheckpointWriter writer({.path = folder.path(), .finite_weights = true}, {weight}, *host.memory, Disk(), nullptr,
                          kNever);
  values[3] = std::numeric_limits<float>::infinity();
  writer.save(progress_at(1), host.stream);
  EXPECT_EQ(writer.wait(1e6).outcome, SaveOutcome::refused);
  EXPECT_FALSE(open_newest_whole(folder.path()));
  values[3] = 1;
  writer.save(progress_at(2), host.stream);
  EXPECT_EQ(writer.wait().outcome, SaveOutcome::saved);
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
                            Disk([](std::string_view, const fs::path&) { throw EnvironmentError("test"); }), nullptr,
                            kNever);
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
