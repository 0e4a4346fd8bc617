// Ranks that are slow: named after twenty steps at less than half of their peers' speed, and never for a moment's
// pause.
#include "telemetry/slow_ranks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace lockstep::tests {
namespace {

using Changes = std::vector<SlowRanks::Change>;

std::vector<PeerWork> same_work(int ranks) { return std::vector<PeerWork>(static_cast<std::size_t>(ranks)); }

// The step after which the first change is told; 0: none is.
int first_change(SlowRanks& slow, const std::vector<double>& seconds, int steps, Changes& changes) {
  for (int step = 1; step <= steps; ++step)
    if (changes = slow.add(seconds); !changes.empty()) return step;
  return 0;
}

TEST(UsualOfPeers, IsTheMedianOfTheOthersOfTheSameKind) {
  const std::vector<PeerWork> work{{0}, {0}, {0}, {1}, {1}, {2}};
  const std::vector<double> usual = usual_of_peers(std::vector<double>{3, 1, 2, 10, 20, 5}, work);
  EXPECT_EQ(usual[0], 2);  // of 1 and 2 the upper one
  EXPECT_EQ(usual[1], 3);
  EXPECT_EQ(usual[2], 3);
  EXPECT_EQ(usual[3], 20);
  EXPECT_EQ(usual[4], 10);
  EXPECT_TRUE(std::isnan(usual[5])) << "it has no peers";
}

TEST(UsualOfPeers, IsByShare) {
  const std::vector<PeerWork> work{{0, 2}, {0, 1}, {0, 1}};
  const std::vector<double> usual = usual_of_peers(std::vector<double>{4, 2, 2}, work);
  EXPECT_EQ(usual[0], 4);
  EXPECT_EQ(usual[1], 2);
}

TEST(UsualOfPeers, EqualsWhatACountOfTheOthersSays) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::size_t ranks = 1 + random() % 9;
    std::vector<double> seconds(ranks);
    std::vector<PeerWork> work(ranks);
    for (double& one : seconds) one = static_cast<double>(random() % 5);  // many are equal
    for (PeerWork& one : work) one.peers = static_cast<std::int64_t>(random() % 2);
    const std::vector<double> usual = usual_of_peers(seconds, work);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::vector<double> others;
      for (std::size_t other = 0; other < ranks; ++other)
        if (other != rank && work[other].peers == work[rank].peers) others.push_back(seconds[other]);
      std::sort(others.begin(), others.end());
      if (others.empty())
        EXPECT_TRUE(std::isnan(usual[rank]));
      else
        EXPECT_EQ(usual[rank], others[others.size() / 2]);
    }
  }
}

TEST(SlowRanks, OneIsNamedAfterTwentyStepsAndWhenItIsWellAgain) {
  SlowRanks slow(same_work(4));
  Changes changes;
  EXPECT_EQ(first_change(slow, {0.1, 0.1, 0.21, 0.1}, 100, changes), 20);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].rank, 2);
  EXPECT_TRUE(changes[0].slow);
  EXPECT_DOUBLE_EQ(changes[0].seconds, 0.21);
  EXPECT_DOUBLE_EQ(changes[0].usual, 0.1);
  EXPECT_EQ(changes[0].steps, 20);
  EXPECT_EQ(first_change(slow, {0.1, 0.1, 0.21, 0.1}, 100, changes), 0) << "told once";
  EXPECT_EQ(first_change(slow, {0.1, 0.1, 0.1, 0.1}, 100, changes), 20);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].rank, 2);
  EXPECT_FALSE(changes[0].slow);
}

TEST(SlowRanks, OneThatBecomesSlowLaterIsNamedWithinTwentySteps) {
  SlowRanks slow(same_work(3));
  Changes changes;
  ASSERT_EQ(first_change(slow, {0.1, 0.1, 0.1}, 50, changes), 0);
  EXPECT_EQ(first_change(slow, {0.1, 0.3, 0.1}, 50, changes), 20);
  EXPECT_EQ(changes.at(0).rank, 1);
}

TEST(SlowRanks, ArePutDownToHalfTheSpeedAndNotLess) {
  Changes changes;
  for (const double seconds : {0.15, 0.19, 0.2}) {
    SlowRanks slow(same_work(3));
    EXPECT_EQ(first_change(slow, {0.1, seconds, 0.1}, 100, changes), 0) << seconds;
  }
  SlowRanks pair(same_work(2));
  EXPECT_EQ(first_change(pair, {0.3, 0.1}, 100, changes), 20);
  EXPECT_EQ(changes.at(0).rank, 0);
}

TEST(SlowRanks, APauseIsNoSlowness) {
  SlowRanks slow(same_work(3));
  for (int step = 0; step < 500; ++step) {
    std::vector<double> seconds{0.1, 0.1, 0.1};
    if (step % 24 != 0) seconds[static_cast<std::size_t>(step / 24 % 3)] = step % 24 < 18 ? 0.5 : 0.1;
    EXPECT_TRUE(slow.add(seconds).empty()) << step;  // each in turn for seventeen steps
  }
}

// Times of ranks that wait for a core as often as not: from one step to the next they differ by a factor of fifty.
double noisy_time(std::mt19937& random) {
  return 0.05 * std::exp(std::uniform_real_distribution<double>(0, std::log(50.0))(random));
}

TEST(SlowRanks, EqualRanksThatFightForCoresAreNotNamed) {
  for (const int ranks : {2, 3, 4, 8, 16}) {
    std::mt19937 random(static_cast<unsigned>(ranks));
    SlowRanks slow(same_work(ranks));
    std::vector<double> seconds(static_cast<std::size_t>(ranks));
    for (int step = 0; step < 20'000; ++step) {
      for (double& one : seconds) one = noisy_time(random);
      ASSERT_TRUE(slow.add(seconds).empty()) << ranks << " ranks, step " << step;
    }
  }
}

TEST(SlowRanks, ASlowRankAmongRanksThatFightForCoresIsNamed) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    SlowRanks slow(same_work(4));
    Changes changes;
    int step = 0;
    for (; step < 1000 && changes.empty(); ++step) {
      std::vector<double> seconds(4);
      for (double& one : seconds) one = noisy_time(random);
      seconds[2] *= 20;
      changes = slow.add(seconds);
    }
    ASSERT_EQ(changes.size(), 1u) << seed;
    EXPECT_EQ(changes[0].rank, 2) << seed;
    EXPECT_LT(step, 300) << seed;
  }
}

TEST(SlowRanks, ShortStepsAreTakenTogether) {
  // Of four ranks on two cores one has none for 20 ms at a time: many steps in a row, and no sample.
  SlowRanks slow(same_work(4));
  std::mt19937 random(11);
  std::vector<double> held(4);
  for (int step = 0; step < 20'000; ++step) {
    std::vector<double> seconds(4, 0.001);
    if (step % 20 == 0) held.assign(4, 0), held[random() % 4] = 0.0015;
    for (std::size_t rank = 0; rank < 4; ++rank) seconds[rank] += held[rank];
    ASSERT_TRUE(slow.add(seconds).empty()) << step;
  }
  Changes changes;
  EXPECT_GT(first_change(slow, {0.001, 0.003, 0.001, 0.001}, 1000, changes), 20 * 16) << "0.05 s are 17 of its steps";
  EXPECT_EQ(changes.at(0).rank, 1);
}

TEST(SlowRanks, StagesOfAPipelineAreNoPeers) {
  Changes changes;
  SlowRanks slow({{0}, {0}, {1}, {1}, {2}});
  EXPECT_EQ(first_change(slow, {0.1, 0.1, 0.4, 0.4, 0.9}, 100, changes), 0) << "each has as much work as its peers";
  EXPECT_GT(first_change(slow, {0.1, 0.1, 0.4, 0.9, 0.9}, 100, changes), 0);
  EXPECT_EQ(changes.at(0).rank, 3);
}

TEST(SlowRanks, UnevenSharesAreNoSlowness) {
  Changes changes;
  SlowRanks slow({{0, 3}, {0, 1}});
  EXPECT_EQ(first_change(slow, {0.3, 0.1}, 100, changes), 0);
  EXPECT_EQ(first_change(slow, {0.3, 0.25}, 100, changes), 20);
  EXPECT_EQ(changes.at(0).rank, 1);
}

}  // namespace
}  // namespace lockstep::tests
