// How long a rank usually is in each place of its step: the last few durations, noted by its own thread and read by
// another.
//
// Noting one costs two plain stores: no lock, no allocation, no clock. A reader may see a ring of which one duration is
// older than another that is missing; a median does not mind.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/median.h"

namespace lockstep {

class RecentDurations {
 public:
  static constexpr std::uint64_t kKept = 8, kFewest = 3;

  explicit RecentDurations(std::size_t places) : places_(places) {}
  RecentDurations(const RecentDurations&) = delete;
  RecentDurations& operator=(const RecentDurations&) = delete;

  // By the rank's own thread. A place that there is none of is ignored.
  void note(int place, std::int64_t nanoseconds) {
    if (static_cast<std::size_t>(place) >= places_.size()) return;
    Ring& ring = places_[static_cast<std::size_t>(place)];
    const std::uint64_t noted = ring.noted.load(std::memory_order_relaxed);
    ring.seconds[noted % kKept].store(static_cast<float>(nanoseconds) * 1e-9F, std::memory_order_relaxed);
    ring.noted.store(noted + 1, std::memory_order_release);
  }

  // By any thread: the median, in seconds; nothing before kFewest were noted.
  std::optional<double> usual(int place) const {
    if (static_cast<std::size_t>(place) >= places_.size()) return std::nullopt;
    const Ring& ring = places_[static_cast<std::size_t>(place)];
    const std::uint64_t noted = ring.noted.load(std::memory_order_acquire);
    if (noted < kFewest) return std::nullopt;
    std::vector<double> seconds;
    for (std::uint64_t i = 0; i < std::min(noted, kKept); ++i)
      seconds.push_back(static_cast<double>(ring.seconds[i].load(std::memory_order_relaxed)));
    return median(std::move(seconds));
  }

 private:
  struct Ring {
    std::array<std::atomic<float>, kKept> seconds{};
    std::atomic<std::uint64_t> noted{0};
  };
  std::vector<Ring> places_;
};

}  // namespace lockstep
