// What the leading agent decides where workers may die while the others continue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/led.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
using Clock = Leader::Clock;

// Three workers of two ranks each, and a row of servers, on four hosts of two slots.
Led with_workers(int most_restarts = 10) {
  return Led(4, 8, {OnFault::restart, OnFault::wait}, 0, 0, {.count = 3, .line = 2}, most_restarts);
}

TEST(LeaderOfWorkers, StartsAloneTheOneThatFails) {
  Led run = with_workers();
  run.join_all(4);
  ASSERT_EQ(run.started.size(), 4u);
  for (const auto& [agent, order] : run.started) EXPECT_FALSE(order.joins);
  run.started.clear();
  run.end(2, 128 + 9);
  EXPECT_EQ(run.killed, (std::set<int>{3})) << "the rest of it";
  EXPECT_TRUE(run.started.empty()) << "while some of it runs";
  run.end(3, 128 + 9, true);
  ASSERT_EQ(run.started.size(), 1u);
  EXPECT_TRUE(run.started[0].second.joins);
  EXPECT_EQ(run.started[0].second.epoch, run.leader().epoch().number);
  EXPECT_EQ(run.started[0].second.places, (std::vector<EpochOrder::Place>{{2, 0}, {3, 1}}));
  EXPECT_EQ(run.kills, 0);
  EXPECT_EQ(run.leader().phase(), Leader::Phase::running);
  ASSERT_EQ(run.decisions.size(), 1u);
  EXPECT_EQ(run.decisions[0].decision, Decision::go_on);
  EXPECT_EQ(run.decisions[0].culprit, 2);
}

TEST(LeaderOfWorkers, RestartsAllForAServerOrTheLastWorker) {
  Led server = with_workers();
  server.join_all(4);
  server.end(6, 128 + 9);
  EXPECT_GT(server.kills, 0);
  EXPECT_EQ(server.leader().phase(), Leader::Phase::ending);
  Led last = with_workers(0);
  last.join_all(4);
  for (const int rank : {0, 2}) {
    last.end(rank, 128 + 9);
    last.end(rank + 1, 128 + 9, true);
    EXPECT_EQ(last.leader().phase(), Leader::Phase::running);
  }
  EXPECT_EQ(last.started.size(), 4u) << "none may start again";
  last.end(4, 128 + 9);
  EXPECT_GT(last.kills, 0);
}

// A mistake that a new start would repeat.
TEST(LeaderOfWorkers, LeavesAwayOneWhoseStartWouldNotHelp) {
  Led run = with_workers();
  run.join_all(4);
  run.end(0, 4);
  run.end(1, 128 + 9, true);
  EXPECT_EQ(run.started.size(), 4u);
  EXPECT_EQ(run.leader().phase(), Leader::Phase::running);
  EXPECT_THAT(run.told.back(), HasSubstr("worker 0 stays away"));
}

TEST(LeaderOfWorkers, StartsThoseOfALostHostWhenItIsBack) {
  Led run = with_workers();
  run.join_all(4);
  run.lose(1);
  EXPECT_EQ(run.kills, 0);
  EXPECT_EQ(run.started.size(), 4u);
  run.join(1);
  run.tick();
  ASSERT_EQ(run.started.size(), 5u);
  EXPECT_EQ(run.started[4].first, 1);
  EXPECT_TRUE(run.started[4].second.joins);
  run.lose(3);  // the servers'
  EXPECT_GT(run.kills, 0);
}

// What they have written of themselves says nothing any more, whether they had ended, are killed, or are lost.
TEST(LeaderOfWorkers, TellsOfAllRanksOfOneThatGoesAndComesBack) {
  Led run = with_workers();
  run.join_all(4);
  EXPECT_TRUE(run.away.empty());
  run.leader().stalled({.rank = 3, .found = "has been in forward block.3 for 40 s"}, Clock::now());
  EXPECT_EQ(run.away, (std::set<int>{2, 3}));
  run.end(3, 128 + 9, true);
  EXPECT_EQ(run.away, (std::set<int>{2, 3})) << "while some of it runs";
  run.end(2, 128 + 9, true);
  EXPECT_TRUE(run.away.empty());
  EXPECT_EQ(run.started.size(), 5u);
  run.end(4, 4);  // and stays away
  EXPECT_EQ(run.away, (std::set<int>{4, 5}));
  run.lose(0);
  EXPECT_EQ(run.away, (std::set<int>{0, 1, 4, 5}));
}

// It misses servers that have ended, of which nothing has been heard yet; all others have come to the end of the run.
TEST(LeaderOfWorkers, OneThatFailsAsTheRunEndsIsNoFaultOfTheRun) {
  for (const bool host : {false, true}) {
    Led run = with_workers();
    run.join_all(4);
    run.step = 100;
    for (const int rank : {0, 1, 4, 5}) run.end(rank, 0);
    if (host)
      run.lose(1);
    else
      run.end(2, 5);
    EXPECT_EQ(run.leader().phase(), Leader::Phase::running);
    EXPECT_EQ(run.kills, 0);
    if (!host) run.end(3, 128 + 9, true);
    for (const int rank : {6, 7}) run.end(rank, 0);
    run.tick();
    run.tick(3);
    for (const int rank : {2, 3}) run.end(rank, 5);  // which had been started again
    run.tick();
    EXPECT_TRUE(run.leader().over());
    EXPECT_EQ(run.leader().code(), 0);
  }
}

// Ended by something else than the run's end, they do not count: nobody is left.
TEST(LeaderOfWorkers, RestartsAllWhereTheOthersOnlySeemToHaveEndedWell) {
  Led run = with_workers(0);
  run.join_all(4);
  run.unfinished = {0, 4};
  for (const int rank : {0, 4}) {
    run.end(rank, 0);
    run.end(rank + 1, 128 + 9, true);
  }
  EXPECT_EQ(run.leader().phase(), Leader::Phase::running);
  run.end(2, 5);
  EXPECT_EQ(run.leader().phase(), Leader::Phase::ending);
}

TEST(LeaderOfWorkers, EndsWhenTheServersHave) {
  Led run = with_workers();
  run.join_all(4);
  run.step = 100;
  run.end(2, 128 + 9);
  run.end(3, 128 + 9, true);  // and starts again, too late to be let go
  for (const int rank : {0, 1, 4, 5, 6, 7}) run.end(rank, 0);
  run.tick();
  EXPECT_FALSE(run.leader().over());
  run.tick(3);
  EXPECT_EQ(run.killed, (std::set<int>{2, 3}));
  run.end(2, 5);
  run.end(3, 128 + 9, true);
  run.tick();
  EXPECT_TRUE(run.leader().over());
  EXPECT_EQ(run.leader().code(), 0);
}

}  // namespace
}  // namespace lockstep::tests
