// That a wait ends when its deadline passes: not before, and not at twice the time.
//
// A machine that is busy with other things makes a wait longer, never shorter. So no try may end before the deadline,
// and of some tries one must end within one and a half of it: a wait of twice the deadline never does, however often it
// is tried, and where nothing disturbs the first try is enough.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>

namespace lockstep::tests {

inline constexpr double kUntilTwice = 1.5;

// The shortest of the waits. `wait` gives the seconds that one wait took, by a clock that does not go back.
inline void expect_ends_at(double deadline, const std::function<double()>& wait) {
  constexpr int kTries = 8;
  double shortest = 1e30;
  for (int i = 0; i < kTries && shortest >= kUntilTwice * deadline; ++i) {
    const double seconds = wait();
    EXPECT_GE(seconds, 0.99 * deadline) << "before the deadline";
    shortest = std::min(shortest, seconds);
  }
  EXPECT_LT(shortest, kUntilTwice * deadline) << "the deadline is " << deadline << " s";
}

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace lockstep::tests
