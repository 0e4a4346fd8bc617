// The streams of the cpu and of meta: nothing is left to wait for when a call returns.
#include "tensor/stream.h"

#include <gtest/gtest.h>

#include "tensor/cpu/stream.h"
#include "tensor/meta/stream.h"

namespace lockstep {
namespace {

class CpuStream : public ::testing::Test {
 protected:
  Ledger ledger_;
  std::unique_ptr<Memory> memory_ = make_memory(Device::cpu, ledger_);
};

TEST_F(CpuStream, TakesItsScratchOnceAsWorkspace) {
  {
    cpu::Stream stream(*memory_, 3);
    EXPECT_EQ(stream.device(), Device::cpu);
    EXPECT_EQ(stream.workers().threads(), 3);
    EXPECT_EQ(ledger_.current(Tag::workspace), 3 * cpu::kScratchBytes);
    for (int worker = 0; worker < 3; ++worker) {
      EXPECT_EQ(static_cast<char*>(stream.scratch(worker)) - static_cast<char*>(stream.scratch(0)),
                worker * cpu::kScratchBytes);
      static_cast<char*>(stream.scratch(worker))[cpu::kScratchBytes - 1] = 1;
    }
  }
  EXPECT_EQ(ledger_.current(), 0);
}

TEST_F(CpuStream, IsAlwaysIdle) {
  cpu::Stream stream(*memory_, 1);
  const auto event = stream.make_event();
  stream.record(*event);
  EXPECT_TRUE(event->done());
  event->wait();
  stream.wait(*event);
  stream.synchronize();
}

TEST_F(CpuStream, IsNotMeta) {
  meta::Stream counting;
  EXPECT_THROW(cpu::Stream::of(counting), ProgramError);
  cpu::Stream stream(*memory_, 1);
  EXPECT_EQ(&cpu::Stream::of(stream), &stream);
  EXPECT_THROW(meta::Stream::of(stream), ProgramError);
  EXPECT_EQ(&meta::Stream::of(counting), &counting);
}

TEST(MetaStream, StartsAtNothingAndIsAlwaysDone) {
  meta::Stream stream;
  EXPECT_EQ(stream.work(), meta::Work{});
  EXPECT_EQ(stream.device(), Device::meta);
  const auto event = stream.make_event();
  stream.record(*event);
  EXPECT_TRUE(event->done());
  event->wait();
  stream.wait(*event);
  stream.synchronize();
  EXPECT_EQ(stream.work(), meta::Work{});
}

}  // namespace
}  // namespace lockstep
