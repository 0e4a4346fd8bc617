// What a trace notes of a message: from before it was sent until it was first seen to be done, and its ends as ranks of
// the world.
#include "comm/traced.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/ranks.h"

namespace lockstep::tests {
namespace {

double traced_test_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TEST(TracedMessages, EndWhenTheyAreFirstSeenToBeDone) {
  run_ranks(2, [](std::unique_ptr<Communicator> comm) {
    MessageTrace trace;
    Traced world(*comm, trace, "w");
    Row x(DType::f32, 100);
    world.all_reduce(x)->wait();
    trace.start();
    trace.set_step(7);
    const double before = traced_test_now();
    const auto message = world.all_reduce(x);
    const double begun = traced_test_now();
    while (!message->done()) std::this_thread::yield();
    const double done = traced_test_now();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    message->wait();
    const std::vector<TracedMessage> noted = trace.finish();
    ASSERT_EQ(noted.size(), 1u) << "what was before the trace is not in it";
    EXPECT_EQ(noted[0].step, 7);
    EXPECT_EQ(noted[0].bytes, 400);
    EXPECT_GE(noted[0].begin, before);
    EXPECT_LE(noted[0].begin, begun);
    EXPECT_GE(noted[0].end, noted[0].begin);
    EXPECT_LE(noted[0].end, done);
  });
}

TEST(TracedMessages, NameTheirPeersAsRanksOfTheWorld) {
  run_ranks(4, [](std::unique_ptr<Communicator> comm) {
    MessageTrace trace;
    Traced world(*comm, trace, "w");
    const auto odd_and_even = world.split([](int rank) { return Place{rank % 2, rank}; }, "dp");
    trace.start();
    Row x(DType::f32, 10);
    odd_and_even->broadcast(x, 1)->wait();
    world.barrier()->wait();
    const std::vector<TracedMessage> noted = trace.finish();
    ASSERT_EQ(noted.size(), 2u);
    EXPECT_EQ(noted[0].peer, 2 + world.rank() % 2);
    EXPECT_EQ(noted[0].ranks, 2);
    EXPECT_EQ(noted[1].peer, -1);
    EXPECT_NE(noted[0].key, noted[1].key);
  });
}

}  // namespace
}  // namespace lockstep::tests
