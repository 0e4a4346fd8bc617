// Ranks that write one checkpoint together: equal parts, whole or not there at all, read by any number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "checkpoint/rank_saves.h"
#include "comm/single_rank.h"

namespace lockstep {
namespace {

using namespace checkpoint_tests;
using testing::ElementsAre;

constexpr int kCounts[] = {1, 2, 3, 5};

// Larger than a few blocks of 256, and some smaller than one.
std::vector<FakeState::Kind> uneven_kinds() {
  return {{"weight", "a", {5001}, DType::f32},
          {"m", "a", {5001}, DType::bf16},
          {"weight", "b", {7}, DType::f32},
          {"m", "b", {7}, DType::bf16},
          {"weight", "c", {61, 47}, DType::f32}};
}

std::int64_t bytes_in(const Manifest& manifest, const std::string& file) {
  std::int64_t bytes = 0;
  for (const ManifestTensor& t : manifest.tensors)
    for (const ManifestSlice& s : t.slices)
      if (s.file == file) bytes += (s.range.end() - s.range.begin) * size_of(t.dtype);
  return bytes;
}

TEST(CheckpointRanks, WriteEqualPartsCutAtMultiplesOf256) {
  for (const int ranks : {1, 2, 3, 5, 16}) {
    const TempFolder folder;
    save_by(ranks, {.path = folder.path()}, 3, uneven_kinds());
    const Checkpoint checkpoint = *open_newest_whole(folder.path());
    const Manifest& manifest = checkpoint.manifest();
    ASSERT_EQ(std::ssize(manifest.files), ranks);
    double total = 0;
    for (const ManifestFile& file : manifest.files) total += static_cast<double>(bytes_in(manifest, file.name));
    for (const ManifestFile& file : manifest.files)
      EXPECT_LE(std::abs(static_cast<double>(bytes_in(manifest, file.name)) - total / ranks), 256 * 4) << file.name;
    std::size_t slices = 0;
    for (const ManifestTensor& t : manifest.tensors) {
      slices += t.slices.size();
      for (const ManifestSlice& s : t.slices) EXPECT_EQ(s.range.begin % 256, 0) << t.name;
    }
    EXPECT_LE(slices, manifest.tensors.size() + static_cast<std::size_t>(ranks) - 1) << "more cuts than ranks need";
    Host host;
    FakeState loaded(1, uneven_kinds());
    checkpoint.load(loaded.tensors(), host.stream);
    EXPECT_TRUE(loaded.is(3)) << ranks;
  }
}

TEST(CheckpointRanks, AnyNumberReadsWhatAnyNumberWrote) {
  for (const int writers : kCounts) {
    const TempFolder folder;
    save_by(writers, {.path = folder.path(), .file_limit = 1100}, 6, uneven_kinds());
    for (const int readers : kCounts) {
      FakeState together(1, uneven_kinds());  // each reader fills its own elements of it
      run_ranks(readers, [&](std::unique_ptr<Communicator> group) {
        Host host;
        open_newest_whole(folder.path())->load(share(together, *group), host.stream);
      });
      EXPECT_TRUE(together.is(6)) << writers << " wrote, " << readers << " read";
    }
  }
}

TEST(CheckpointRanks, ARankReadsOnlyWhatItNeeds) {
  const TempFolder folder;
  save_by(3, {.path = folder.path()}, 6, uneven_kinds());
  const fs::path path = open_newest_whole(folder.path())->path();
  const std::vector<ManifestFile> files = open_checkpoint(path).manifest().files;
  fs::remove(path / files[2].name);
  EXPECT_NE(refusal([&] { open_checkpoint(path); }), "");
  const Checkpoint checkpoint = open_verified_checkpoint(path);
  Host host;
  FakeState together(1, uneven_kinds());
  for (const int rank : {0, 1}) checkpoint.load(share_of_state(together.tensors(), rank, 3), host.stream);
  EXPECT_FALSE(together.is(6));
  EXPECT_THAT(refusal([&] { checkpoint.load(share_of_state(together.tensors(), 2, 3), host.stream); }),
              testing::HasSubstr(files[2].name));
}

// tests/checkpoint/one_writer was written before several ranks could write.
TEST(CheckpointRanks, WhatOneWriterWroteStillLoadsAndOneRankWritesTheSameBytes) {
  const fs::path old = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/checkpoint/one_writer";
  const auto found = open_newest_whole(old);
  ASSERT_TRUE(found);
  EXPECT_TRUE(holds(*found, 5));
  EXPECT_EQ(found->manifest().files.size(), 2u);

  SingleRank alone(Device::cpu);
  for (Communicator* ranks : {static_cast<Communicator*>(nullptr), static_cast<Communicator*>(&alone)}) {
    const TempFolder folder;
    FakeState state(3);
    state.set(5);
    save_checkpoint({.path = folder.path(), .file_limit = 6000}, progress_at(5), state.tensors(), Disk(), ranks);
    ASSERT_EQ(names_in(folder.path() / "step-00000005"), names_in(old / "step-00000005"));
    for (const std::string& name : names_in(old / "step-00000005"))
      EXPECT_TRUE(bytes_of(folder.path() / "step-00000005" / name) == bytes_of(old / "step-00000005" / name)) << name;
  }
}

TEST(CheckpointRanks, TheManifestComesAfterEveryRanksFilesAreSynced) {
  const TempFolder folder;
  save(folder.path(), 1, 1);
  std::mutex mutex;
  std::vector<std::pair<int, std::string>> steps;
  run_ranks(3, [&](std::unique_ptr<Communicator> group) {
    FakeState state;
    state.set(2);
    const Disk disk([&](std::string_view operation, const fs::path& path) {
      const std::lock_guard lock(mutex);
      steps.emplace_back(group->rank(), std::string(operation) + " " + path.lexically_relative(folder.path()).string());
    });
    save_checkpoint({.path = folder.path(), .keep = 1}, progress_at(2), share(state, *group), disk, group.get());
  });
  const std::string partial = ".partial-step-00000002";
  const auto place = [&](int rank, const std::string& step) {
    const auto at = std::find(steps.begin(), steps.end(), std::pair(rank, step));
    EXPECT_NE(at, steps.end()) << rank << " " << step;
    return at - steps.begin();
  };
  const auto manifest = place(0, "open " + partial + "/manifest.json");
  for (const int rank : {0, 1, 2}) {
    const std::string state = fmt::format("{}/state-0000{}-of-00003.safetensors", partial, rank);
    EXPECT_LT(place(0, "fsync " + partial + "/token"), place(rank, "open " + state));
    EXPECT_LT(place(rank, "fsync " + state), manifest);
    if (rank > 0) {
      EXPECT_LT(place(rank, "fsync " + partial), manifest);
    }
  }
  EXPECT_LT(place(0, "unlink " + partial + "/token"), manifest);
  for (const auto& [rank, step] : steps)
    EXPECT_TRUE(rank == 0 || step.find("/state-") != std::string::npos || step == "fsync " + partial) << step;
  EXPECT_THAT(names_in(folder.path() / "step-00000002"),
              ElementsAre("manifest.json", "state-00000-of-00003.safetensors", "state-00001-of-00003.safetensors",
                          "state-00002-of-00003.safetensors"));
}

TEST(CheckpointRanks, ARankWithoutStateWritesNothing) {
  const TempFolder folder;
  run_ranks(3, [&](std::unique_ptr<Communicator> group) {
    FakeState state;
    state.set(8);
    const auto pieces = group->rank() == 0 ? state.tensors() : std::vector<StateTensor>();
    save_checkpoint({.path = folder.path()}, progress_at(8), pieces, Disk(), group.get());
  });
  EXPECT_TRUE(holds(*open_newest_whole(folder.path()), 8));
  EXPECT_THAT(names_in(folder.path() / "step-00000008"),
              ElementsAre("manifest.json", "state-00000-of-00001.safetensors"));
}

}  // namespace
}  // namespace lockstep
