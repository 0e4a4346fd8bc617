// Places by lifetime: never two at once on the same bytes, and no more bytes than the fullest moment needs when sizes
// are equal.
#include "spec/step/lifetimes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "support/sanitizer.h"

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

struct Alive {
  std::int64_t bytes, first, last;
};

// Whether any two that live together lie over each other, looked at from moment to moment.
bool overlap(const Lifetimes& lives, const std::vector<Alive>& things) {
  std::map<std::int64_t, std::vector<int>> births, deaths;
  for (int i = 0; i < static_cast<int>(things.size()); ++i) {
    births[things[i].first].push_back(i);
    deaths[things[i].last].push_back(i);
  }
  std::map<std::int64_t, int> living;  // by offset
  for (auto& [moment, ids] : births) {
    for (auto dead = deaths.begin(); dead != deaths.end() && dead->first < moment; dead = deaths.erase(dead))
      for (const int id : dead->second)
        if (things[id].bytes > 0) living.erase(lives.offset(id));
    for (const int id : ids) {
      if (things[id].bytes == 0) continue;
      const auto [at, is_new] = living.try_emplace(lives.offset(id), id);
      if (!is_new) return true;
      const auto ends = [&](auto one) { return one->first + things[one->second].bytes; };
      if (at != living.begin() && ends(std::prev(at)) > at->first) return true;
      if (std::next(at) != living.end() && ends(at) > std::next(at)->first) return true;
    }
  }
  return false;
}

// More things than pairs of them could be looked at.
TEST(Lifetimes, ManyThingsNeverOverlapEither) {
  std::mt19937 random(4);
  for (const int longest : {3, 40, 2000}) {
    Lifetimes lives(1);
    std::vector<Alive> things;
    for (int i = 0; i < 10'000; ++i) {
      const std::int64_t first = random() % 5000, length = random() % longest;
      things.push_back({static_cast<std::int64_t>(random() % 7) * 100, first, first + length});
      lives.add(things.back().bytes, first, first + length);
    }
    const std::int64_t total = lives.plan();
    EXPECT_FALSE(overlap(lives, things)) << longest;
    EXPECT_GE(total, lives.fullest_moment());
    for (int i = 0; i < 10'000; ++i) EXPECT_LE(lives.offset(i) + things[i].bytes, total);
  }
}

// Micro-batches that are kept so many at a time, of several sizes each, and what lives beside them for a moment: as a
// stage of a pipeline has them.
Lifetimes stage_of(int micros, int in_flight) {
  Lifetimes lives(1);
  constexpr int kUnits = 10, kStep = 4 * kUnits;  // moments of a forward, and of a backward
  for (int m = 0; m < micros; ++m)
    for (int u = 0; u < kUnits; ++u) {
      const std::int64_t forward = 2 * kStep * m + 2 * u, backward = 2 * kStep * (m + in_flight) - 2 * u;
      for (const std::int64_t bytes : {100, 100, 125, 700, 350}) lives.add(bytes, forward, backward);
      lives.add(800, forward, forward + 1);
      lives.add(750, backward - 1, backward);
    }
  return lives;
}

TEST(Lifetimes, OfAPipelineNeedHardlyMoreThanTheFullestMoment) {
  for (const int in_flight : {1, 3, 8})
    for (const int micros : {20, 200}) {
      Lifetimes lives = stage_of(micros, in_flight);
      EXPECT_LE(static_cast<double>(lives.plan()), 1.02 * static_cast<double>(lives.fullest_moment()) + 800)
          << micros << " micro-batches, " << in_flight << " in flight";
    }
}

TEST(Lifetimes, OfManyThingsTakeTimeByTheirNumber) {
  const auto seconds = [](int micros) {
    Lifetimes lives = stage_of(micros, 8);
    const std::clock_t before = std::clock();
    lives.plan();
    return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  };
  EXPECT_LT(seconds(2000), 0.5 * tests::kSlowdown);  // 140,000 things: by pairs they would take minutes
}

TEST(Lifetimes, NothingNeedsNothing) {
  Lifetimes lives(256);
  EXPECT_EQ(lives.plan(), 0);
  lives.add(0, 3, 4);
  EXPECT_EQ(lives.plan(), 0);
}

}  // namespace
}  // namespace lockstep
