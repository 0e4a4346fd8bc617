// How a thread waits for other ranks: with a deadline, a short spin, then pauses that grow.
//
// Used by all backends and wrappers of comm, so that they wait alike. Times are of the steady clock. Each object
// belongs to one wait and is used by one thread at a time.
#pragma once
#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

namespace lockstep::waiting {

using Clock = std::chrono::steady_clock;

inline Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}
inline double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }
inline Clock::time_point deadline_in(double s) { return Clock::now() + seconds(s); }

// The deadline of an operation: its seconds count from when it is first tested or waited for.
class Deadline {
 public:
  explicit Deadline(double seconds) : seconds_(seconds) {}
  Clock::time_point get() {
    if (!at_) at_ = deadline_in(seconds_);
    return *at_;
  }
  bool passed() { return Clock::now() >= get(); }

 private:
  double seconds_;
  std::optional<Clock::time_point> at_;
};

// Whether waiting threads may spin: each of the ranks on this host can have a core.
inline bool may_spin(int ranks_here) { return ranks_here <= static_cast<int>(std::thread::hardware_concurrency()); }

// Spins until done() or for 40 us, less than it takes to wake a thread that sleeps. After the first 4 us it offers the
// core to others at every turn: the thread that it waits for may want this very core.
template <class Done>
void spin_until(const Done& done) {
  constexpr auto kSpin = std::chrono::microseconds(40), kWithoutYield = std::chrono::microseconds(4);
  const Clock::time_point began = Clock::now();
  for (auto spun = Clock::duration(0); spun < kSpin && !done(); spun = Clock::now() - began) {
    if (spun < kWithoutYield)
      __builtin_ia32_pause();
    else
      std::this_thread::yield();
  }
}

// Pauses between two looks at something: each half as long again as the one before, up to a limit.
class Backoff {
 public:
  Backoff(Clock::duration first, Clock::duration longest) : pause_(first), longest_(longest) {}
  void pause() {
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(pause_ * 3 / 2, longest_);
  }

 private:
  Clock::duration pause_, longest_;
};

// Of a wrapper that tests done() until an operation is over.
inline Backoff wrapper_backoff() { return {std::chrono::microseconds(5), std::chrono::milliseconds(1)}; }

}  // namespace lockstep::waiting
