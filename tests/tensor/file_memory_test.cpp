// A file as memory: what was written is read back, wherever it begins and ends; and a disk that does otherwise is
// named.
#include "tensor/disk/file_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <deque>
#include <random>

#include "base/error.h"
#include "support/devices.h"
#include "support/program.h"
#include "support/small_disk.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

using disk::FileMemory;
using disk::kBlock;
using disk::RawIo;
using testing::HasSubstr;

using MakeIo = std::function<std::unique_ptr<RawIo>()>;
struct NamedIo {
  std::string name;
  MakeIo make;
};

// Does a part of every request at first, and interrupts some.
class HalfIo final : public RawIo {
 public:
  explicit HalfIo(std::unique_ptr<RawIo> all) : all_(std::move(all)) {}
  int depth() const override { return all_->depth(); }
  void start(const disk::RawRequest& request) override {
    disk::RawRequest less = request;
    const int turn = ++count_ % 3;
    if (turn == 1) less.bytes = std::max<std::int64_t>(4096, request.bytes / 2 / 4096 * 4096);
    if (turn == 2)
      interrupted_.push_back({request.tag, -EINTR});
    else
      all_->start(less);
  }
  disk::RawResult next() override {
    if (interrupted_.empty()) return all_->next();
    const disk::RawResult result = interrupted_.front();
    interrupted_.pop_front();
    return result;
  }

 private:
  std::unique_ptr<RawIo> all_;
  std::deque<disk::RawResult> interrupted_;
  int count_ = 0;
};

std::vector<NamedIo> kinds_of_io() {
  return {{"uring", [] { return disk::make_uring_io(8); }},
          {"threads", [] { return disk::make_thread_io(3); }},
          {"in_parts", [] { return std::make_unique<HalfIo>(disk::make_thread_io(2)); }}};
}

class FileMemories : public ::testing::TestWithParam<NamedIo> {
 protected:
  void SetUp() override {
    std::unique_ptr<RawIo> io = GetParam().make();
    if (!io) GTEST_SKIP() << "this kernel has no io_uring";
    memory_ = std::make_unique<FileMemory>(ledger_, folder_.path(), std::move(io));
  }
  TemporaryFolder folder_;
  Ledger ledger_;
  std::unique_ptr<FileMemory> memory_;
};

TEST_P(FileMemories, GiveBackWhatWasWritten) {
  std::mt19937 random(3);
  struct Pair {
    Buffer buffer;
    std::vector<char> plain;
  };
  std::vector<Pair> pairs;
  for (const std::int64_t bytes : {std::int64_t{256}, kBlock, 5 * kBlock + 512, 90 * kBlock})
    pairs.push_back(
        {memory_->allocate(bytes, Tag::optimizer, "unit"), std::vector<char>(static_cast<std::size_t>(bytes))});
  for (int round = 0; round < 200; ++round) {
    Pair& pair = pairs[random() % pairs.size()];
    const std::size_t begin = random() % pair.plain.size(), count = random() % (pair.plain.size() - begin) + 1;
    char* const at = static_cast<char*>(pair.buffer.data()) + begin;
    if (random() % 2 == 0) {
      for (std::size_t i = begin; i < begin + count; ++i) pair.plain[i] = static_cast<char>(random());
      memory_->write(at, &pair.plain[begin], static_cast<std::int64_t>(count));
    } else {
      std::vector<char> back(count, 'x');
      memory_->read(back.data(), at, static_cast<std::int64_t>(count));
      ASSERT_TRUE(std::equal(back.begin(), back.end(), pair.plain.begin() + static_cast<std::ptrdiff_t>(begin)))
          << "round " << round;
    }
  }
}

TEST_P(FileMemories, MoveManyWindowsAtOnce) {
  constexpr int kWindows = 6;
  constexpr std::int64_t kBytes = 40 * kBlock;  // several requests each
  const Buffer buffer = memory_->allocate(kWindows * kBytes, Tag::optimizer);
  Ledger ledger;
  const auto heap = make_memory(Device::cpu, ledger);
  const Buffer host = heap->allocate(kWindows * kBytes + kBlock, Tag::workspace);
  char* const begin =
      static_cast<char*>(host.data()) + (kBlock - reinterpret_cast<std::uintptr_t>(host.data()) % kBlock);
  std::vector<FileMemory::Moving> moving;
  for (int w = 0; w < kWindows; ++w) {
    std::fill_n(begin + w * kBytes, kBytes, static_cast<char>('a' + w));
    moving.push_back(memory_->start_write(static_cast<char*>(buffer.data()) + w * kBytes, begin + w * kBytes, kBytes));
  }
  for (const auto& m : moving) memory_->finish(m);
  std::fill_n(begin, kWindows * kBytes, 'x');
  moving.clear();
  for (int w = 0; w < kWindows; ++w)
    moving.push_back(memory_->start_read(begin + w * kBytes, static_cast<char*>(buffer.data()) + w * kBytes, kBytes));
  for (int w = kWindows - 1; w >= 0; --w) {  // in any order
    memory_->finish(moving[static_cast<std::size_t>(w)]);
    EXPECT_EQ(std::count(begin + w * kBytes, begin + (w + 1) * kBytes, static_cast<char>('a' + w)), kBytes) << w;
  }
}

TEST_P(FileMemories, BeginWithZerosAlsoWhereSomethingWas) {
  const std::vector<char> ones(2 * kBlock, 1);
  {
    const Buffer first = memory_->allocate(2 * kBlock, Tag::optimizer);
    memory_->write(first.data(), ones.data(), 2 * kBlock);
  }
  const Buffer again = memory_->allocate(2 * kBlock, Tag::optimizer);
  std::vector<char> back(2 * kBlock, 'x');
  memory_->read(back.data(), again.data(), 2 * kBlock);
  EXPECT_EQ(back, std::vector<char>(2 * kBlock));
}

TEST_P(FileMemories, HaveNoNameThatALaterRunCouldFind) {
  const Buffer buffer = memory_->allocate(kBlock, Tag::optimizer);
  memory_->write(buffer.data(), "x", 1);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_P(FileMemories, AreReadAndWrittenAsTensors) {
  CpuDevice cpu;
  const Buffer buffer = memory_->allocate(40'000 * 4, Tag::optimizer);
  const Tensor flat = view(buffer, DType::f32, {40'000});
  ASSERT_EQ(flat.device(), Device::disk);
  std::vector<float> values(40'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  upload(flat, values.data(), cpu.stream());
  // Rows of 10, 100 apart, from element 7 on.
  const Tensor rows = flat.rows_apart(7, 300, 10, 100);
  std::vector<float> some(3000);
  download(some.data(), rows, cpu.stream());
  for (std::size_t i = 0; i < some.size(); ++i) ASSERT_EQ(some[i], static_cast<float>(7 + i / 10 * 100 + i % 10));
  for (float& v : some) v = -v;
  upload(rows, some.data(), cpu.stream());
  const std::vector<double> all = to_doubles(flat, cpu.stream());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool in_row = i >= 7 && (i - 7) % 100 < 10 && (i - 7) / 100 < 300;
    ASSERT_EQ(all[i], in_row ? -static_cast<double>(i) : static_cast<double>(i)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, FileMemories, testing::ValuesIn(kinds_of_io()),
                         [](const auto& info) { return info.param.name; });

// Answers as it is told, for the requests of a kind from one on.
class BadIo final : public RawIo {
 public:
  BadIo(bool writes, int error) : writes_(writes), error_(error) {}
  int depth() const override { return all_->depth(); }
  void start(const disk::RawRequest& request) override {
    if (request.write == writes_ && error_ != 0) {
      results_.push_back({request.tag, error_ < 0 ? 0 : -error_});
    } else {
      kept_ = request;
      all_->start(request);
    }
  }
  disk::RawResult next() override {
    if (!results_.empty()) {
      const disk::RawResult result = results_.front();
      results_.pop_front();
      return result;
    }
    const disk::RawResult result = all_->next();
    if (error_ == 0 && !kept_.write) static_cast<char*>(kept_.data)[77] ^= 4;  // a bit of what was read
    return result;
  }

 private:
  std::unique_ptr<RawIo> all_ = disk::make_thread_io(1);
  bool writes_;
  int error_;  // 0: none, but a bit is wrong; -1: the file ends
  disk::RawRequest kept_;
  std::deque<disk::RawResult> results_;
};

std::string failure_of(bool writes, int error) {
  const TemporaryFolder folder;
  Ledger ledger;
  FileMemory memory(ledger, folder.path(), std::make_unique<BadIo>(writes, error));
  const Buffer buffer = memory.allocate(3 * kBlock, Tag::optimizer);
  std::vector<char> bytes(3 * kBlock, 7);
  try {
    memory.write(buffer.data(), bytes.data(), 3 * kBlock);
    memory.read(bytes.data(), buffer.data(), 3 * kBlock);
  } catch (const EnvironmentError& failure) {
    EXPECT_THAT(failure.what(), HasSubstr(folder.path().string()));
    return failure.what();
  }
  return "";
}

TEST(FileMemory, NamesADiskThatFails) {
  const std::string check = "; check the disk, or name a path on another with memory.offload_folder";
  EXPECT_THAT(failure_of(true, EIO), HasSubstr("write failed: Input/output error" + check));
  EXPECT_THAT(failure_of(false, EIO), HasSubstr("read failed: Input/output error" + check));
  EXPECT_THAT(failure_of(true, ENOSPC), HasSubstr("write failed: No space left on device; free space there, or name a "
                                                  "path on another disk with memory.offload_folder"));
  EXPECT_THAT(failure_of(false, -1), HasSubstr("read failed: the file is shorter than it was" + check));
}

TEST(FileMemory, NamesADiskThatReturnsAnotherBit) {
  EXPECT_THAT(failure_of(false, 0), HasSubstr("the disk returned other bytes than were written there (offset 0"));
}

TEST(FileMemory, TakesTheRoomAtOnceOrNotAtAll) {
  const TemporaryFolder folder;
  const SmallDisk small(folder / "disk", "size=4m");
  if (!small) GTEST_SKIP() << "this user may not mount a small tmpfs";
  Ledger ledger;
  FileMemory memory(ledger, folder / "disk");
  EXPECT_LE(disk::free_bytes_in(folder / "disk"), 4 << 20);
  const Buffer some = memory.allocate(1 << 20, Tag::optimizer, "block.0");
  try {
    memory.allocate(8 << 20, Tag::optimizer, "block.1");
    FAIL() << "a disk of 4 MiB gave 8";
  } catch (const UserError& refusal) {
    EXPECT_EQ(refusal.code(), ExitCode::does_not_fit);
    EXPECT_THAT(refusal.what(), AllOf(HasSubstr("disk"), HasSubstr("block.1")));
  }
  EXPECT_EQ(ledger.current(), 1 << 20);
  const Buffer more = memory.allocate(1 << 20, Tag::optimizer, "block.1");
}

TEST(FileMemory, KnowsItsOwnAddressesAlone) {
  const TemporaryFolder folder;
  Ledger ledger;
  FileMemory one(ledger, folder.path()), two(ledger, folder.path());
  const Buffer a = one.allocate(kBlock, Tag::optimizer), b = two.allocate(kBlock, Tag::optimizer);
  EXPECT_EQ(&FileMemory::of(a.data()), &one);
  EXPECT_EQ(&FileMemory::of(static_cast<char*>(b.data()) + 100), &two);
  int here = 0;
  EXPECT_THROW(FileMemory::of(&here), ProgramError);
}

}  // namespace
}  // namespace lockstep::tests
