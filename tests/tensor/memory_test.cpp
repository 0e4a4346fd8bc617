// Memory, buffers and the ledger: every byte is written down, on every device the same.
#include "tensor/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "base/error.h"
#include "support/sanitizer.h"

namespace lockstep {
namespace {

TEST(Ledger, KnowsCurrentAndPeakByTagUnitAndInAll) {
  Ledger ledger;
  ledger.add(Tag::parameter, "block.0", 100);
  ledger.add(Tag::gradient, "block.0", 50);
  ledger.add(Tag::parameter, "block.1", 30);
  ledger.add(Tag::gradient, "block.0", -50);
  ledger.add(Tag::activation, "", 20);
  ledger.add(Tag::parameter, "block.1", -30);
  EXPECT_EQ(ledger.current(Tag::parameter), 100);
  EXPECT_EQ(ledger.peak(Tag::parameter), 130);
  EXPECT_EQ(ledger.current(Tag::gradient), 0);
  EXPECT_EQ(ledger.peak(Tag::gradient), 50);
  EXPECT_EQ(ledger.current(), 120);
  EXPECT_EQ(ledger.peak(), 180);  // not 130 + 50 + 20: they were never there together
  EXPECT_EQ(ledger.current(Tag::workspace), 0);
  EXPECT_EQ(ledger.allocations(), 4);
  const Ledger::Rows want = {{{Tag::parameter, "block.0"}, {100, 100}},
                             {{Tag::gradient, "block.0"}, {0, 50}},
                             {{Tag::parameter, "block.1"}, {0, 30}},
                             {{Tag::activation, ""}, {20, 20}}};
  EXPECT_EQ(ledger.rows(), want);
}

TEST(Ledger, NamesItsTags) {
  EXPECT_EQ(name_of(Tag::parameter), "parameter");
  EXPECT_EQ(name_of(Tag::data), "data");
  for (int tag = 0; tag < kTags; ++tag) EXPECT_FALSE(name_of(static_cast<Tag>(tag)).empty());
}

TEST(Ledger, CountsRightFromManyThreads) {
  Ledger ledger;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        ledger.add(Tag::data, "a", 8);
        ledger.add(Tag::data, "a", -8);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.current(), 0);
  EXPECT_EQ(ledger.allocations(), 8000);
  EXPECT_GE(ledger.peak(), 8);
  EXPECT_LE(ledger.peak(), 32);
}

class MemoryOf : public ::testing::TestWithParam<Device> {
 protected:
  Ledger ledger_;
  std::unique_ptr<Memory> memory_ = make_memory(GetParam(), ledger_);
};

TEST_P(MemoryOf, WritesEveryBufferIntoItsLedger) {
  EXPECT_EQ(memory_->device(), GetParam());
  EXPECT_EQ(&memory_->ledger(), &ledger_);
  {
    const Buffer a = memory_->allocate(1000, Tag::parameter, "head"), b = memory_->allocate(256, Tag::gradient);
    EXPECT_EQ(a.bytes(), 1024);
    EXPECT_EQ(b.bytes(), 256);
    EXPECT_EQ(ledger_.current(Tag::parameter), 1024);
    EXPECT_EQ(ledger_.current(), 1280);
    EXPECT_EQ((ledger_.rows().at({Tag::parameter, "head"}).current), 1024);
  }
  EXPECT_EQ(ledger_.current(), 0);
  EXPECT_EQ(ledger_.peak(), 1280);
  EXPECT_EQ(ledger_.allocations(), 2);
}

TEST_P(MemoryOf, AMovedBufferIsGivenBackOnce) {
  Buffer a = memory_->allocate(100, Tag::data, "x");
  void* const data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: what is left of a moved buffer is part of the contract
  EXPECT_EQ(a.bytes(), 0);
  EXPECT_EQ(a.memory(), nullptr);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(ledger_.current(), 256);
  b = memory_->allocate(1000, Tag::workspace, "y");  // what it held goes back
  EXPECT_EQ(ledger_.current(Tag::data), 0);
  EXPECT_EQ(ledger_.current(Tag::workspace), 1024);
  Buffer& same = b;
  b = std::move(same);
  EXPECT_EQ(ledger_.current(Tag::workspace), 1024);
  b = Buffer();
  EXPECT_EQ(ledger_.current(), 0);
}

TEST_P(MemoryOf, AnEmptyBufferIsOneAllTheSame) {
  const Buffer empty = memory_->allocate(0, Tag::data);
  EXPECT_EQ(empty.bytes(), 0);
  EXPECT_EQ(empty.memory(), memory_.get());
  EXPECT_EQ(ledger_.current(), 0);
}

TEST_P(MemoryOf, ANegativeSizeIsRefused) { EXPECT_THROW(memory_->allocate(-1, Tag::data), ProgramError); }

INSTANTIATE_TEST_SUITE_P(Device, MemoryOf, ::testing::Values(Device::cpu, Device::meta),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(CpuMemory, IsAlignedAndWritable) {
  Ledger ledger;
  const auto memory = make_memory(Device::cpu, ledger);
  for (const std::int64_t bytes : {1, 255, 256, 257, 100000}) {
    const Buffer buffer = memory->allocate(bytes, Tag::data);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kAlignment, 0u);
    std::fill_n(static_cast<char*>(buffer.data()), buffer.bytes(), 'x');
  }
}

TEST(CpuMemory, SaysWhoAskedWhenThereIsNotEnough) {
  if (tests::kUnderSanitizer) GTEST_SKIP() << "the sanitizers' allocators stop the program instead";
  Ledger ledger;
  const auto memory = make_memory(Device::cpu, ledger);
  try {
    const Buffer buffer = memory->allocate(std::int64_t{1} << 60, Tag::optimizer, "block.7");
    FAIL() << "a buffer of 2^60 bytes";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::does_not_fit);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("optimizer"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("block.7"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("1152921504606846976"));
  }
  EXPECT_EQ(ledger.current(), 0);
}

TEST(MetaMemory, GrantsWhatNoMachineHas) {
  Ledger ledger;
  const auto memory = make_memory(Device::meta, ledger);
  const Buffer buffer = memory->allocate(std::int64_t{1} << 60, Tag::parameter);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(ledger.peak(), std::int64_t{1} << 60);
}

}  // namespace
}  // namespace lockstep
