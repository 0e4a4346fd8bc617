// Rows of elements that lie apart: where they are, parts of them, and when they are one.
#include "base/strided_range.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::tests {
namespace {

std::vector<std::int64_t> places(const StridedRange& range) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < range.elements(); ++i) all.push_back(range.at(i));
  return all;
}

TEST(StridedRange, IsRowsOnePitchApart) {
  const StridedRange columns{.begin = 3, .row = 2, .pitch = 5, .rows = 3};
  EXPECT_EQ(columns.elements(), 6);
  EXPECT_EQ(columns.end(), 15);
  EXPECT_TRUE(columns.apart());
  EXPECT_EQ(places(columns), (std::vector<std::int64_t>{3, 4, 8, 9, 13, 14}));
}

TEST(StridedRange, OfOneRowIsFlat) {
  const StridedRange flat = flat_range(4, 7);
  EXPECT_EQ(flat, (StridedRange{.begin = 4, .row = 3, .pitch = 3, .rows = 1}));
  EXPECT_FALSE(flat.apart());
  EXPECT_EQ(flat.end(), 7);
  EXPECT_EQ(places(flat), (std::vector<std::int64_t>{4, 5, 6}));
  EXPECT_EQ(flat_range(4, 4).elements(), 0);
  EXPECT_EQ(flat_range(4, 4).end(), 4);
}

TEST(StridedRange, SomeRowsAreRowsAndOneOfThemIsFlat) {
  const StridedRange columns{.begin = 3, .row = 2, .pitch = 5, .rows = 4};
  EXPECT_EQ(columns.some(1, 2), (StridedRange{.begin = 8, .row = 2, .pitch = 5, .rows = 2}));
  EXPECT_EQ(columns.some(3, 1), flat_range(18, 20));
  EXPECT_EQ(columns.some(2, 0), flat_range(13, 13));
}

TEST(StridedRange, RowsWithNothingBetweenThemJoin) {
  EXPECT_EQ((StridedRange{.begin = 3, .row = 2, .pitch = 2, .rows = 4}).joined(), flat_range(3, 11));
  EXPECT_EQ((StridedRange{.begin = 3, .row = 2, .pitch = 9, .rows = 1}).joined(), flat_range(3, 5));
  EXPECT_EQ((StridedRange{.begin = 3, .row = 2, .pitch = 9, .rows = 0}).joined(), flat_range(3, 3));
  const StridedRange apart{.begin = 3, .row = 2, .pitch = 5, .rows = 4};
  EXPECT_EQ(apart.joined(), apart);
}

}  // namespace
}  // namespace lockstep::tests
