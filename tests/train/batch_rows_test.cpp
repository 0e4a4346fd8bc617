// The rows of micro-batches without padding: every token of every sample once, in order, over the ranks of a context.
#include "train/batch_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "data/dataset.h"

namespace lockstep::tests {
namespace {

// Four samples of at most 8 tokens, in two micro-batches; token i is i.
constexpr std::int64_t kT = 8;
std::vector<std::int32_t> samples() {
  std::vector<std::int32_t> tokens;
  for (const std::int32_t length : {3, 8, 1, 5})
    for (std::int32_t t = 0; t < kT; ++t)
      tokens.push_back(t < length ? static_cast<std::int32_t>(tokens.size()) : kPadding);
  return tokens;
}

std::vector<std::int64_t> places_of(const BatchRows& rows, int m) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < rows.count(m); ++i) all.push_back(rows.place(m, i));
  return all;
}

TEST(BatchRows, AreTheTokensOfTheSamplesOneAfterAnother) {
  BatchRows rows({.B = 4, .T = kT, .micro = 2, .varlen = true});
  rows.find(samples());
  EXPECT_EQ(places_of(rows, 0), (std::vector<std::int64_t>{0, 1, 2, 8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(places_of(rows, 1), (std::vector<std::int64_t>{16, 24, 25, 26, 27, 28}));
  EXPECT_EQ(rows.room(), 16);
  const RowExtent extent = rows.extent(1, {.rank = 1, .size = 4, .sequence = true});
  EXPECT_EQ(extent.tokens, 6);
  EXPECT_EQ(extent.room, 16);
  EXPECT_EQ(extent.own, 2) << "the first ranks have one more";
  EXPECT_EQ(extent.own_room, 4);
}

TEST(BatchRows, AreSplitOverAContextAfterAsLittlePaddingAsThatTakes) {
  for (const bool zigzag : {false, true}) {
    std::vector<std::int64_t> found[2], padding{0, 0};
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      BatchRows rows(
          {.B = 4, .T = kT, .micro = 2, .context = {.rank = rank, .ring = 4, .zigzag = zigzag}, .varlen = true});
      rows.find(samples());
      EXPECT_EQ(rows.whole(0), zigzag ? 16 : 12);
      EXPECT_EQ(rows.whole(1), 8);
      EXPECT_EQ(rows.room(), 4);
      for (int m = 0; m < 2; ++m)
        for (const std::int64_t place : places_of(rows, m))
          place < 0 ? void(++padding[static_cast<std::size_t>(m)]) : found[m].push_back(place);
    }
    for (auto& places : found) std::ranges::sort(places);
    EXPECT_EQ(found[0], (std::vector<std::int64_t>{0, 1, 2, 8, 9, 10, 11, 12, 13, 14, 15}));
    EXPECT_EQ(found[1], (std::vector<std::int64_t>{16, 24, 25, 26, 27, 28}));
    EXPECT_EQ(padding, (std::vector<std::int64_t>{zigzag ? 5 : 1, 2}));
  }
}

// Another batch leaves nothing of the one before; as many tokens as ranks are always there.
TEST(BatchRows, AreOfTheBatchThatWasFoundLast) {
  BatchRows rows({.B = 1, .T = kT, .micro = 1, .varlen = true, .least = 2});
  std::vector<std::int32_t> tokens(kT, 7);
  rows.find(tokens);
  EXPECT_EQ(rows.count(0), kT);
  std::ranges::fill(std::span(tokens).subspan(1), kPadding);
  rows.find(tokens);
  EXPECT_EQ(places_of(rows, 0), (std::vector<std::int64_t>{0, BatchRows::kNone}));
}

TEST(BatchRows, WithPaddingAreAllTokens) {
  const BatchRows rows({.B = 4, .T = kT, .micro = 2, .context = {.rank = 1, .ring = 2}});
  EXPECT_EQ(places_of(rows, 1), (std::vector<std::int64_t>{20, 21, 22, 23, 28, 29, 30, 31}));
}

}  // namespace
}  // namespace lockstep::tests
