// Places by lifetime: never two at once on the same bytes, and no more bytes than the fullest moment needs when sizes
// are equal.
#include "spec/lifetimes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockstep {
namespace {

TEST(Lifetimes, ThingsThatLiveTogetherNeverOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Lifetimes lives(64);
    struct Thing {
      std::int64_t bytes, first, last;
    };
    std::vector<Thing> things;
    for (int i = 0; i < 40; ++i) {
      const std::int64_t first = random() % 30;
      things.push_back(
          {static_cast<std::int64_t>(random() % 1000), first, first + static_cast<std::int64_t>(random() % 10)});
      EXPECT_EQ(lives.add(things[i].bytes, things[i].first, things[i].last), i);
    }
    const std::int64_t total = lives.plan();
    for (int i = 0; i < 40; ++i) {
      EXPECT_EQ(lives.offset(i) % 64, 0);
      EXPECT_LE(lives.offset(i) + things[i].bytes, total);
      for (int j = 0; j < i; ++j) {
        if (things[i].last < things[j].first || things[j].last < things[i].first) continue;
        const bool apart = lives.offset(i) + things[i].bytes <= lives.offset(j) ||
                           lives.offset(j) + things[j].bytes <= lives.offset(i);
        EXPECT_TRUE(apart) << i << " and " << j;
      }
    }
  }
}

TEST(Lifetimes, EqualSizesNeedNoMoreThanTheFullestMoment) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    Lifetimes lives(256);
    std::vector<int> alive(40, 0);
    for (int i = 0; i < 30; ++i) {
      const int first = static_cast<int>(random() % 30), last = first + static_cast<int>(random() % 10);
      lives.add(512, first, last);
      for (int t = first; t <= last; ++t) ++alive[t];
    }
    // First fit in order of adding is not optimal for intervals in general; it is when they come in order of birth, as
    // below.
    EXPECT_LE(lives.plan(), 2 * 512 * *std::max_element(alive.begin(), alive.end()));
  }
  Lifetimes chain(256);
  for (int i = 0; i < 100; ++i) chain.add(1000, i, i + 1);
  EXPECT_EQ(chain.plan(), 2 * 1024);
}

// Two at a time, whatever their sizes: a large one, some smaller ones, and a large one again, as units are gathered.
TEST(Lifetimes, OfWhichTwoLiveAtATimeNeedNoMoreThanTwoNeighbours) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    Lifetimes chain(256);
    std::vector<std::int64_t> sizes;
    for (int i = 0; i < 20; ++i) {
      sizes.push_back(256 * static_cast<std::int64_t>(1 + random() % (round % 7 + 1)));
      chain.add(sizes.back(), i, i + 1);
    }
    std::int64_t most = 0;
    for (std::size_t i = 1; i < sizes.size(); ++i) most = std::max(most, sizes[i - 1] + sizes[i]);
    EXPECT_EQ(chain.plan(), most) << round;
  }
}

// One of two stays while several others come and go beside it.
TEST(Lifetimes, OneThatStaysTakesNothingFromThoseBesideIt) {
  Lifetimes lives(1);
  lives.add(40, 0, 1);  // a large one
  lives.add(30, 1, 9);  // stays
  lives.add(40, 2, 3);
  lives.add(30, 4, 5);
  lives.add(40, 6, 9);
  lives.add(30, 10, 12);
  lives.add(40, 11, 12);
  EXPECT_EQ(lives.plan(), 70);
}

TEST(Lifetimes, NothingNeedsNothing) {
  Lifetimes lives(256);
  EXPECT_EQ(lives.plan(), 0);
  lives.add(0, 3, 4);
  EXPECT_EQ(lives.plan(), 0);
}

}  // namespace
}  // namespace lockstep
