#include "spec/layout/cache_split.h"

#include <gtest/gtest.h>

#include <random>

namespace lockstep::tests {
namespace {

TEST(CacheSplit, GivesARunToTheFirstOfThoseThatHaveFewest) {
  std::vector<CacheSplit> all;
  for (int rank = 0; rank < 3; ++rank) all.emplace_back(rank, 3);
  const auto read = [&](std::int64_t run) {
    int keeper = -1, keepers = 0;
    for (int rank = 0; rank < 3; ++rank)
      if (all[rank].keeps()) keeper = rank, ++keepers;
    EXPECT_EQ(keepers, 1);
    for (CacheSplit& one : all) one.add(run);
    return keeper;
  };
  EXPECT_EQ(read(4), 0);
  EXPECT_EQ(read(1), 1);
  EXPECT_EQ(read(1), 2);
  EXPECT_EQ(read(1), 1);
  EXPECT_EQ(read(4), 2);
  EXPECT_EQ(read(1), 1);
  EXPECT_EQ(read(1), 1);
  EXPECT_EQ(read(1), 0);
  EXPECT_EQ(all[0].rows(), 5);
  EXPECT_EQ(all[1].rows(), 4);
  EXPECT_EQ(all[2].rows(), 5);
  all[1].clear();
  EXPECT_EQ(all[1].rows(), 0);
  EXPECT_FALSE(all[1].keeps());
}

// Runs of one token or of a chunk, as a generator reads them, in any order.
TEST(CacheSplit, HasRoomForAnyRunsAndNoneToSpare) {
  std::mt19937 random(1);
  for (const std::int64_t ranks : {1, 2, 3, 4, 7})
    for (const std::int64_t longest : {1, 2, 5, 8})
      for (std::int64_t all = longest; all < 40; ++all) {
        const std::int64_t room = CacheSplit::room(all, longest, ranks);
        const auto most = [&](const auto& next) {
          std::int64_t rows = 0;
          std::vector<CacheSplit> cut;
          for (std::int64_t rank = 0; rank < ranks; ++rank) cut.emplace_back(rank, ranks);
          for (std::int64_t left = all; left > 0;) {
            const std::int64_t run = next(left);
            left -= run;
            for (CacheSplit& one : cut) one.add(run);
          }
          for (const CacheSplit& one : cut) rows = std::max(rows, one.rows());
          return rows;
        };
        for (int i = 0; i < 20; ++i)
          EXPECT_LE(
              most([&](std::int64_t left) { return random() % 2 == 0 && left >= longest ? longest : std::int64_t{1}; }),
              room);
        EXPECT_EQ(most([&](std::int64_t left) { return left == longest ? longest : std::int64_t{1}; }), room)
            << all << " tokens, " << longest << " at once, " << ranks << " ranks";
      }
}

}  // namespace
}  // namespace lockstep::tests
