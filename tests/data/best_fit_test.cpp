// Best-fit packing: against a plain search over all bins, and what it fills.
#include "data/best_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace lockstep::tests {
namespace {

// The longest first; each into the bin with the least room that is enough, of several the one filled last.
std::vector<std::int64_t> searched(const std::vector<std::int32_t>& lengths, std::int64_t capacity) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
  struct Bin {
    std::int64_t room, filled_at;
  };
  std::vector<Bin> bins;
  std::vector<std::int64_t> bin(lengths.size());
  std::int64_t turn = 0;
  for (const std::size_t piece : order) {
    int best = -1;
    for (int b = 0; b < static_cast<int>(bins.size()); ++b) {
      if (bins[b].room < lengths[piece]) continue;
      if (best < 0 || bins[b].room < bins[best].room ||
          (bins[b].room == bins[best].room && bins[b].filled_at > bins[best].filled_at))
        best = b;
    }
    if (best < 0) {
      best = static_cast<int>(bins.size());
      bins.push_back({capacity, 0});
    }
    bins[best].room -= lengths[piece];
    bins[best].filled_at = ++turn;
    bin[piece] = best;
  }
  return bin;
}

TEST(BestFit, IsWhatASearchOfAllBinsFinds) {
  std::mt19937 random(1);
  for (const std::int64_t capacity : {1, 2, 63, 64, 65, 200, 5000})
    for (const std::size_t count : {0U, 1U, 7U, 700U}) {
      std::vector<std::int32_t> lengths(count);
      for (std::int32_t& length : lengths)
        length = static_cast<std::int32_t>(1 + random() % (random() % 3 == 0 ? capacity : capacity / 3 + 1) % capacity);
      const Packing packing = best_fit(lengths, capacity);
      const std::vector<std::int64_t> expected = searched(lengths, capacity);
      EXPECT_EQ(packing.bin, expected) << capacity << ", " << count;
      EXPECT_EQ(packing.bins, count == 0 ? 0 : *std::ranges::max_element(expected) + 1);
    }
}

TEST(BestFit, TakesNothingThatFitsNowhere) {
  EXPECT_ANY_THROW(best_fit(std::vector<std::int32_t>{3, 9}, 8));
  EXPECT_ANY_THROW(best_fit(std::vector<std::int32_t>{0}, 8));
}

}  // namespace
}  // namespace lockstep::tests
