// Layouts that a leader may need are found before it does.
#include "launch/layouts_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace lockstep::tests {
namespace {

std::optional<LaunchLayout> ranks_of(int slots) { return LaunchLayout{.ranks = slots, .text = "dp"}; }

TEST(LayoutsAhead, AreFoundOnceEach) {
  std::atomic<int> calls = 0;
  LayoutsAhead layouts([&](int slots) {
    ++calls;
    return ranks_of(slots);
  });
  layouts.prepare(3);
  for (int again = 0; again < 3; ++again) EXPECT_EQ(layouts.get(3)->ranks, 3);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(layouts.get(2)->ranks, 2);
  EXPECT_EQ(calls, 2);
}

TEST(LayoutsAhead, WhoAsksDoesNotWaitForAllThatWerePrepared) {
  std::atomic<int> calls = 0;
  LayoutsAhead layouts([&](int slots) {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return ranks_of(slots);
  });
  for (int slots = 1; slots <= 100; ++slots) layouts.prepare(slots);
  EXPECT_EQ(layouts.get(100)->ranks, 100);
  EXPECT_LT(calls, 50);
}

TEST(LayoutsAhead, ARunThatCannotBePlannedHasNone) {
  LayoutsAhead layouts([](int) -> std::optional<LaunchLayout> { throw std::runtime_error("no such run"); });
  EXPECT_FALSE(layouts.get(4).has_value());
}

}  // namespace
}  // namespace lockstep::tests
