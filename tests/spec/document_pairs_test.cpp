// Pairs of query and key that documents have: by counting them.
#include "spec/model/document_pairs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace lockstep::tests {
namespace {

// Documents of one sample of T tokens: pairs (i, j) of a query i that sees key j, one by one.
TEST(DocumentPairs, OfWholeSamplesAreCounted) {
  const std::int64_t T = 50;
  std::mt19937 random(3);
  std::vector<std::int64_t> lengths(T + 1);
  double pairs = 0, tokens = 0, squares = 0;
  constexpr int kSamples = 20;
  for (int sample = 0; sample < kSamples; ++sample)
    for (std::int64_t at = 0; at < T;) {
      const std::int64_t n = std::min<std::int64_t>(T - at, 1 + random() % 17);
      at += n;
      if (random() % 10 == 0) continue;  // padding
      ++lengths[static_cast<std::size_t>(n)];
      for (std::int64_t i = 0; i < n; ++i) pairs += static_cast<double>(i + 1);
      tokens += static_cast<double>(n);
      squares += static_cast<double>(n * n);
    }
  const DocumentPairs all(kSamples, T, lengths);
  EXPECT_NEAR(all.all_pairs(), pairs / kSamples, 1e-9);
  EXPECT_NEAR(all.work().tokens, tokens / kSamples, 1e-9);
  EXPECT_NEAR(all.work().squares, squares / kSamples, 1e-9);
}

// Every pair of a sample is in one segment of queries and one of keys.
TEST(DocumentPairs, OfSegmentsAddUpToTheWhole) {
  const std::int64_t T = 48;
  std::vector<std::int64_t> lengths(T + 1);
  lengths[3] = 9, lengths[11] = 4, lengths[20] = 2, lengths[48] = 1;
  const DocumentPairs all(4, T, lengths);
  for (const std::int64_t n : {1, 4, 12, 24, 48}) {
    double sum = 0;
    for (std::int64_t query = 0; query < T; query += n)
      for (std::int64_t key = 0; key <= query; key += n) sum += all.pairs(query, key, n);
    EXPECT_NEAR(sum, all.all_pairs(), 1e-9) << n;
  }
  // One document per sample hides nothing; documents hide more of what is further away.
  std::vector<std::int64_t> one(T + 1);
  one[T] = 4;
  EXPECT_NEAR(DocumentPairs(4, T, one).pairs(24, 12, 12), 144, 1e-9);
  EXPECT_LT(all.pairs(36, 0, 12), all.pairs(12, 0, 12));
}

// A row of samples without padding has all their pairs, also where it is shorter than the longest of them.
TEST(DocumentPairs, OfARowWithoutPaddingAreThoseOfItsSamples) {
  const std::int64_t T = 48;
  std::vector<std::int64_t> lengths(T + 1);
  lengths[16] = lengths[48] = 1;
  const DocumentPairs samples(2, T, lengths);
  for (const std::int64_t count : {1, 3, 8})
    for (const std::int64_t multiple : {1, 5, 64}) {
      const auto row = samples.in_row(count, multiple);
      const std::int64_t tokens = 32 * count;
      EXPECT_EQ(row->length(), std::min((tokens + multiple - 1) / multiple * multiple, T * count));
      EXPECT_NEAR(row->all_pairs(), static_cast<double>(count) * samples.all_pairs(), 1e-6);
      EXPECT_NEAR(row->work().tokens, static_cast<double>(tokens), 1e-9);
    }
}

}  // namespace
}  // namespace lockstep::tests
