// Operations go on while their ranks compute, and groups come and go without end.
#include <chrono>
#include <thread>

#include "comm/processes/world.h"
#include "comm/ranks.h"
#include "support/deadlines.h"

namespace lockstep::tests {
namespace {

constexpr int kTries = 3;  // of which the shortest counts: a busy machine makes a wait longer, never shorter

TEST(Overlap, ARankThatComputesHoldsNobodyUp) {
  each_rank(3, [&](Communicator& comm) {
    double shortest = 1e30;
    for (int i = 0; i < kTries; ++i) {
      Row x = row_of(DType::f32, 500009, comm.rank());
      comm.barrier()->wait();
      const auto begin = std::chrono::steady_clock::now();
      const auto pending = comm.all_reduce(x);
      if (comm.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // no call in between
      pending->wait();
      shortest = std::min(shortest, seconds_since(begin));
      EXPECT_EQ(x[17], whole(0, 17) + whole(1, 17) + whole(2, 17));
      comm.barrier()->wait();
    }
    if (comm.rank() != 2) {
      EXPECT_LT(shortest, 1.2);
    }
  });
}

TEST(Overlap, AnOperationIsDoneWhenItsRankHasComputed) {
  each_rank(3, [&](Communicator& comm) {
    double shortest = 1e30;
    for (int i = 0; i < kTries; ++i) {
      Row x = row_of(DType::f32, 500009, comm.rank());
      const auto pending = comm.all_reduce(x);
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      const auto begin = std::chrono::steady_clock::now();
      pending->wait();
      shortest = std::min(shortest, seconds_since(begin));
      comm.barrier()->wait();
    }
    EXPECT_LT(shortest, 0.1) << "all was left to the one who waits";
  });
}

TEST(Overlap, WhoWaitsIsWokenByTheLastToCome) {
  each_rank(3, [&](Communicator& comm) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 300; ++i) {  // looking up by itself now and then, it would take 20 ms a time
      if (comm.rank() == i % 3) std::this_thread::sleep_for(std::chrono::microseconds(200));
      comm.barrier()->wait();
    }
    EXPECT_LT(seconds_since(begin), 3);
  });
}

TEST(Groups, ComeAndGoWithoutEnd) {  // more than a host has room for at a time
  each_rank(2, [&](Communicator& comm) {
    for (int i = 0; i < 1500; ++i) {
      const auto part = comm.split([](int rank) { return Place{0, -rank}; }, "part");
      Row x(DType::i32, 1, [&](std::int64_t) { return i + comm.rank(); });
      part->all_reduce(x)->wait();
      ASSERT_EQ(x[0], 2 * i + 1);
    }
  });
}

TEST(Groups, SayWhatTheyTakeOfTheHost) {
  const ProcessOptions options{.slot_bytes = 1 << 20};
  const std::int64_t staging = 2 * 4 * options.slot_bytes, one = processes::World::group_bytes(4, 1, 4, options);
  EXPECT_GE(one, staging);
  EXPECT_LT(one, staging + 16 * (std::int64_t{2} << 18) + (1 << 20));  // and a channel for each pair
  EXPECT_EQ(processes::World::group_bytes(8, 2, 4, options) - one, 8 * options.slot_bytes);  // the inbox
}

}  // namespace
}  // namespace lockstep::tests
