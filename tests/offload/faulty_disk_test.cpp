// A disk that fails under `lockstep train`, or a process that is killed while it writes there: a clear end, and
// checkpoints to resume from to the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <fstream>

#include "base/error.h"
#include "checkpoint/find_checkpoint.h"
#include "offload/staging.h"
#include "support/faulty_disk.h"
#include "support/killed_updates.h"
#include "support/run_results.h"
#include "tensor/cpu/stream.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

struct DiskFault {
  std::string name, fault, words;  // no words: the run ends as if nothing had been
};

class FaultyDisk : public ::testing::TestWithParam<std::tuple<DiskFault, std::string>> {
 protected:
  void SetUp() override {
    if (const std::string why = no_faulty_disk_here(); !why.empty()) GTEST_SKIP() << why;
    std::ofstream(folder_ / "tiny.toml") << tiny_run(6, 20);
    std::filesystem::create_directories(folder_ / "fast");
  }
  std::vector<std::string> train(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"train",    folder_ / "tiny.toml",   "--out", folder_ / out,
                                 "--layout", std::get<1>(GetParam()), "--set", "train.steps=20",
                                 "--set",    "train.save_every=2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  const std::vector<std::string> offloaded() const {
    return {"--set", "memory.offload_optimizer=disk",
            "--set", "memory.offload_window=1",
            "--set", "memory.offload_folder=" + (folder_ / "fast")};
  }
  TemporaryFolder folder_;
};

TEST_P(FaultyDisk, StopsTheRunInOneLineAndLeavesACheckpointToResumeFrom) {
  const auto& [fault, layout] = GetParam();
  const Outcome whole = run_program(train("whole"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Outcome o = run_on_faulty_disk(fault.fault, train("run", offloaded()));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "fast"));
  if (fault.words.empty()) {
    EXPECT_EQ(o.code, 0) << o.err;
  } else {
    EXPECT_EQ(o.code, 5) << o.out << o.err;
    EXPECT_THAT(o.err, HasSubstr((folder_ / "fast") + ": " + fault.words));
    EXPECT_THAT(o.err, HasSubstr("memory.offload_folder"));
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
    std::string damage;
    const auto newest = open_newest_whole(
        folder_ / "run/checkpoints", [&](const auto& path, const std::string& why) { damage += path.string() + why; });
    ASSERT_TRUE(newest);
    EXPECT_EQ(damage, "");
    EXPECT_GE(newest->progress().step, 2);
    EXPECT_LT(newest->progress().step, 20);
    const Outcome resumed = run_program({"train", "--resume", folder_ / "run"});
    EXPECT_EQ(resumed.code, 0) << resumed.err;
  }
  EXPECT_TRUE(results_in(folder_ / "run") == results_in(folder_ / "whole")) << "other losses or checkpoints";
}

// In the middle of the run, after some checkpoints.
INSTANTIATE_TEST_SUITE_P(
    Of, FaultyDisk,
    testing::Combine(
        testing::Values(
            DiskFault{"FullDisk", "write:90:ENOSPC", "write failed: No space left on device; free space there, or"},
            DiskFault{"BadWrites", "write:90:EIO", "write failed: Input/output error; check the disk, or"},
            DiskFault{"BadReads", "read:300:EIO", "read failed: Input/output error; check the disk, or"},
            DiskFault{"LostEnd", "read:300:end", "read failed: the file is shorter than it was; check the disk, or"},
            DiskFault{"OtherBits", "read:300:flip", "the disk returned other bytes than were written there"},
            DiskFault{"ShortReads", "read:1:short", ""}, DiskFault{"ShortWrites", "write:1:short", ""}),
        testing::Values("micro=2", "dp=2,zero=1")),
    [](const auto& info) { return std::get<0>(info.param).name + (info.index % 2 == 0 ? "" : "OfTwoRanks"); });

// Answers only when it is asked, the last request first, every read with other bytes.
class OtherBytes final : public disk::RawIo {
 public:
  explicit OtherBytes(std::int64_t& reads) : reads_(reads) {}
  int depth() const override { return 64; }
  void start(const disk::RawRequest& request) override {
    started_.push_back(request);
    if (!request.write) ++reads_;
  }
  disk::RawResult next() override {
    const disk::RawRequest request = started_.back();
    started_.pop_back();
    if (!request.write) --reads_;
    if (!request.write) std::memset(request.data, 3, static_cast<std::size_t>(request.bytes));
    return {request.tag, request.bytes};
  }

 private:
  std::int64_t& reads_;
  std::deque<disk::RawRequest> started_;
};

// Or a disk would still write into memory that is somebody else's by then.
TEST(FaultyWindows, AreWaitedForBeforeTheirMemoryIsGivenBack) {
  const TemporaryFolder folder;
  Ledger device, there;
  const auto memory = make_memory(Device::cpu, device);
  cpu::Stream stream(*memory, 1);
  std::int64_t reads = 0;
  disk::FileMemory file(there, folder.path(), std::make_unique<OtherBytes>(reads));
  constexpr std::int64_t kElements = 8 * disk::kBlock;
  std::vector<Buffer> buffers;
  Staging::Pass pass;
  for (int i = 0; i < 3; ++i) {
    buffers.push_back(file.allocate(kElements * 4, Tag::optimizer));
    pass.push_back(view(buffers.back(), DType::f32, {kElements}));
    file.write(buffers.back().data(), std::vector<char>(kElements * 4).data(), kElements * 4);
  }
  {
    Staging staging({.window_bytes = 0, .on_disk = true}, {pass}, *memory, stream);
    EXPECT_THROW(staging.run(0, [](const Staging::Window&) {}), EnvironmentError);
    EXPECT_GT(reads, 0) << "or the test says nothing";
  }
  EXPECT_EQ(reads, 0);
}

// A process has 2^47 bytes of addresses, whatever its ranks' disks are.
TEST(FaultyWindows, OfAHundredRanksFindTheirAddresses) {
  const TemporaryFolder folder;
  Ledger ledger;
  std::vector<std::unique_ptr<disk::FileMemory>> files;
  std::vector<Buffer> buffers;
  for (int rank = 0; rank < 100; ++rank) {
    files.push_back(std::make_unique<disk::FileMemory>(ledger, folder.path(), disk::make_thread_io(1)));
    buffers.push_back(files.back()->allocate(disk::kBlock, Tag::optimizer));
    EXPECT_EQ(&disk::FileMemory::of(buffers.back().data()), files.back().get());
  }
  buffers.clear();
}

// Fifty times in tests/slow.
TEST(OffloadedUpdates, ThatAreKilledAreResumedToTheSameBits) {
  if (const std::string why = no_faulty_disk_here(); !why.empty()) GTEST_SKIP() << why;
  EXPECT_EQ(killed_updates(3, "micro=2"), "");
}

}  // namespace
}  // namespace lockstep::tests
