// Which steps are recorded, so that a file grows with the logarithm of the steps.
//
// A step is recorded when its number is a multiple of the interval, and the first one asked about always is. The
// interval begins at `every` and doubles after each kLinesBeforeDoubling lines.
#pragma once
#include <cstdint>
#include <limits>

#include "base/error.h"

namespace lockstep {

class StepSampling {
 public:
  static constexpr std::int64_t kLinesBeforeDoubling = 32768;

  explicit StepSampling(std::int64_t every) : interval_(every) { LOCKSTEP_CHECK(every > 0, "every {} steps", every); }
  bool wants(std::int64_t step) const { return first_ || step % interval_ == 0; }  // costs a division
  void recorded() { first_ = false; }                                              // a step that it wants
  void count_line() {
    constexpr std::int64_t kMostInterval = std::numeric_limits<std::int64_t>::max() / 2;
    if (++lines_ % kLinesBeforeDoubling == 0 && interval_ <= kMostInterval) interval_ *= 2;
  }
  std::int64_t interval() const { return interval_; }
  std::int64_t lines() const { return lines_; }

 private:
  std::int64_t interval_;
  std::int64_t lines_ = 0;
  bool first_ = true;
};

}  // namespace lockstep
