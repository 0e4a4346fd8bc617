// Time as agents measure it: steadily, whatever happens to the calendar.
#pragma once
#include <chrono>

namespace lockstep::launch {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

}  // namespace lockstep::launch
