// Streams, queues and events: work happens in order, in the thread that waits, and never twice.
#include "tensor/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tensor/cpu/queue.h"
#include "tensor/cpu/stream.h"
#include "tensor/meta/stream.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(Queue, RunsInOrderWhenWaitedFor) {
  cpu::Queue queue;
  std::vector<int> ran;
  for (int i = 0; i < 4; ++i) queue.submit([&ran, i] { ran.push_back(i); });
  EXPECT_TRUE(ran.empty());  // submitting only appends
  queue.synchronize();
  EXPECT_THAT(ran, ElementsAre(0, 1, 2, 3));
  queue.synchronize();
  EXPECT_EQ(ran.size(), 4u);
}

TEST(Queue, RunsOnlyWhatAnEventNeeds) {
  cpu::Queue queue;
  std::vector<int> ran;
  const auto first = queue.make_event(), second = queue.make_event();
  EXPECT_TRUE(first->done());  // never recorded
  first->wait();
  queue.submit([&] { ran.push_back(1); });
  queue.record(*first);
  queue.submit([&] { ran.push_back(2); });
  queue.record(*second);
  EXPECT_FALSE(first->done());
  first->wait();
  EXPECT_TRUE(first->done());
  EXPECT_FALSE(second->done());
  EXPECT_THAT(ran, ElementsAre(1));
  second->wait();
  EXPECT_THAT(ran, ElementsAre(1, 2));
}

TEST(Queue, RunsTheWorkInTheThreadThatWaits) {
  cpu::Queue queue;
  std::thread::id ran;
  queue.submit([&] { ran = std::this_thread::get_id(); });
  const auto event = queue.make_event();
  queue.record(*event);
  std::thread waiting([&] { event->wait(); });
  const std::thread::id id = waiting.get_id();
  waiting.join();
  EXPECT_EQ(ran, id);
}

TEST(Queue, RunsOneAtATimeOnRequest) {
  cpu::Queue queue;
  int ran = 0;
  EXPECT_FALSE(queue.run_one());
  queue.submit([&] { ++ran; });
  queue.submit([&] { ++ran; });
  EXPECT_TRUE(queue.run_one());
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(queue.run_one());
  EXPECT_FALSE(queue.run_one());
}

TEST(Queue, AnEventMayBeRecordedAgain) {
  cpu::Queue queue;
  int ran = 0;
  const auto event = queue.make_event();
  for (int round = 1; round <= 3; ++round) {
    queue.submit([&] { ++ran; });
    queue.record(*event);
    EXPECT_FALSE(event->done());
    event->wait();
    EXPECT_EQ(ran, round);
  }
}

TEST(Queue, APieceThatThrowsCountsAsDone) {
  cpu::Queue queue;
  int ran = 0;
  queue.submit([] { throw std::runtime_error("lost"); });
  queue.submit([&] { ++ran; });
  const auto event = queue.make_event();
  queue.record(*event);
  EXPECT_THROW(event->wait(), std::runtime_error);
  EXPECT_EQ(ran, 0);
  event->wait();
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(event->done());
  queue.synchronize();
}

TEST(Queue, WaitsForAnEventOfAnotherQueue) {
  cpu::Queue first, second;
  std::vector<int> ran;
  first.submit([&] { ran.push_back(1); });
  const auto event = first.make_event();
  first.record(*event);
  second.wait(*event);
  second.submit([&] { ran.push_back(2); });
  second.synchronize();  // runs the other queue's work first
  EXPECT_THAT(ran, ElementsAre(1, 2));
}

TEST(Queue, TwoThreadsThatWaitShareTheWork) {
  for (int round = 0; round < 100; ++round) {
    cpu::Queue queue;
    std::vector<int> ran;  // no lock: pieces run one at a time
    for (int i = 0; i < 20; ++i) queue.submit([&ran, i] { ran.push_back(i); });
    const auto event = queue.make_event();
    queue.record(*event);
    std::thread other([&] {
      event->wait();
      EXPECT_TRUE(event->done());
    });
    event->wait();
    EXPECT_EQ(ran.size(), 20u);
    other.join();
    for (int i = 0; i < 20; ++i) ASSERT_EQ(ran[static_cast<std::size_t>(i)], i);
  }
}

// One thread runs a long piece, another waits for an event behind it and must not go on before it is done.
TEST(Queue, AWaitingThreadWaitsForWhatAnotherRuns) {
  cpu::Queue queue;
  std::atomic<bool> started = false, finish = false;
  std::atomic<bool> finished = false;
  queue.submit([&] {
    started = true;
    while (!finish) std::this_thread::yield();
    finished = true;
  });
  const auto event = queue.make_event();
  queue.record(*event);
  std::thread runner([&] { queue.run_one(); });
  while (!started) std::this_thread::yield();
  EXPECT_FALSE(event->done());
  std::thread waiter([&] {
    event->wait();
    EXPECT_TRUE(finished);
  });
  finish = true;
  waiter.join();
  runner.join();
}

TEST(Queue, MayBeFilledWhileAnotherThreadRunsIt) {
  cpu::Queue queue;
  std::atomic<int> ran = 0;
  std::atomic<bool> stop = false;
  std::thread runner([&] {
    while (!stop || queue.run_one())
      if (!queue.run_one()) std::this_thread::yield();
  });
  for (int i = 0; i < 2000; ++i) queue.submit([&] { ++ran; });
  queue.synchronize();
  EXPECT_EQ(ran, 2000);
  stop = true;
  runner.join();
}

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
  stream.synchronize();
}

TEST_F(CpuStream, WaitsForAQueueByRunningIt) {
  cpu::Stream stream(*memory_, 1);
  cpu::Queue queue;
  bool ran = false;
  queue.submit([&] { ran = true; });
  const auto event = queue.make_event();
  queue.record(*event);
  stream.wait(*event);
  EXPECT_TRUE(ran);
}

TEST_F(CpuStream, AQueueGoesOnAfterAnEventOfTheStream) {
  cpu::Stream stream(*memory_, 1);
  cpu::Queue queue;
  const auto event = stream.make_event();
  stream.record(*event);
  queue.wait(*event);
  bool ran = false;
  queue.submit([&] { ran = true; });
  queue.synchronize();
  EXPECT_TRUE(ran);
}

TEST_F(CpuStream, IsNeitherAQueueNorMeta) {
  cpu::Queue queue;
  meta::Stream counting;
  EXPECT_THROW(cpu::Stream::of(queue), ProgramError);
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
