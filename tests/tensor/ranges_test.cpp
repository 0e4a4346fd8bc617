// Ranges of a block never overlap, gaps that touch become one, and what was given back can be taken again.
#include "tensor/ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace lockstep {
namespace {

TEST(Ranges, NeverOverlapAndComeBackWhole) {
  constexpr std::int64_t kBytes = 10'000;
  Ranges ranges(kBytes);
  std::mt19937 random(3);
  std::vector<bool> used(kBytes);
  std::vector<std::pair<std::int64_t, std::int64_t>> held;
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (!held.empty() && random() % 2 == 0) {
      const std::size_t which = random() % held.size();
      const auto [offset, bytes] = held[which];
      for (std::int64_t b = offset; b < offset + bytes; ++b) used[b] = false;
      ranges.give_back(offset, bytes);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      continue;
    }
    const std::int64_t bytes = 1 + static_cast<std::int64_t>(random() % 900), offset = ranges.take(bytes);
    if (offset < 0) {
      // Then no gap is that long.
      std::int64_t run = 0;
      for (std::int64_t b = 0; b < kBytes; ++b) {
        run = used[b] ? 0 : run + 1;
        ASSERT_LT(run, bytes);
      }
      ++refused;
      continue;
    }
    ASSERT_LE(offset + bytes, kBytes);
    for (std::int64_t b = offset; b < offset + bytes; ++b) {
      ASSERT_FALSE(used[b]);
      used[b] = true;
    }
    held.emplace_back(offset, bytes);
  }
  EXPECT_GT(refused, 0);
  for (const auto& [offset, bytes] : held) ranges.give_back(offset, bytes);
  EXPECT_EQ(ranges.take(kBytes), 0);
  EXPECT_EQ(ranges.take(1), -1);
}

}  // namespace
}  // namespace lockstep
