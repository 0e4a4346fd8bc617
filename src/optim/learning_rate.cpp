#include "optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace lockstep {

double learning_rate(const LearningRateSpec& schedule, double peak, std::int64_t step, std::int64_t steps) {
  LOCKSTEP_CHECK(step >= 0 && steps >= 1, "step {} of {}", step, steps);
  LOCKSTEP_CHECK(schedule.warmup >= 0 && schedule.decay >= 0, "warmup {}, decay {}", schedule.warmup, schedule.decay);
  const std::int64_t last = steps - 1;
  step = std::min(step, last);
  if (step + 1 < schedule.warmup) {
    return peak * (static_cast<double>(step + 1) / static_cast<double>(schedule.warmup));
  }
  if (schedule.kind == RateKind::constant) return peak;

  std::int64_t level = std::max<std::int64_t>(schedule.warmup - 1, 0);  // the last step at the peak
  if (schedule.kind == RateKind::wsd) level = std::max(level, last - std::min(schedule.decay, last));
  if (step <= level) return peak;
  // What is left of the way down, 0 at the last step: there the rate is final·peak to the bit.
  double left = static_cast<double>(last - step) / static_cast<double>(last - level);
  if (schedule.kind == RateKind::cosine) left = 0.5 * (1 - std::cos(std::numbers::pi * left));
  return peak * (schedule.final + (1 - schedule.final) * left);
}

}  // namespace lockstep
