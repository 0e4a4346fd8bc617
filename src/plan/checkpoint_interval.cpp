#include "plan/checkpoint_interval.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {

double expected_segment_seconds(const CheckpointCosts& costs, double work_seconds) {
  const double rate = costs.failures_per_second;
  const double period = costs.stall_seconds + std::max(work_seconds, costs.write_seconds);
  if (!(rate > 0)) return period;
  const double attempt = work_seconds + costs.stall_seconds + costs.write_seconds;
  const double recovery =  // 1 + λR'
      costs.failures_during_recovery ? std::exp(rate * costs.recovery_seconds) : 1 + rate * costs.recovery_seconds;
  return recovery / rate * -std::expm1(-rate * period) * std::exp(rate * attempt);
}

double expected_goodput(const CheckpointCosts& costs, double work_seconds) {
  return work_seconds / expected_segment_seconds(costs, work_seconds);
}

double best_work_seconds(const CheckpointCosts& costs) {
  const double rate = costs.failures_per_second;
  if (!(rate > 0)) return std::numeric_limits<double>::infinity();
  // With x = λτ and c = λC: x + e^{−(x+c)} − 1 = 0, convex and rising for x > 0. Young's √(2c) and 1 are both above the
  // root, and from above Newton's method falls to it without passing it.
  const double c = rate * costs.stall_seconds;
  double x = std::min(1.0, std::sqrt(2 * c));
  for (int i = 0; i < 100 && x > 0; ++i) {
    const double gone = -std::expm1(-(x + c));  // 1 − e^{−(x+c)}, without cancellation
    const double next = std::max(0.0, x - (x - gone) / gone);
    if (!(next < x)) break;
    x = next;
  }
  return std::max(x / rate, std::min(costs.write_seconds, 1 / rate));
}

double young_work_seconds(const CheckpointCosts& costs) {
  return std::sqrt(2 * costs.stall_seconds / costs.failures_per_second);
}

double daly_work_seconds(const CheckpointCosts& costs) {
  const double mean = 1 / costs.failures_per_second, share = costs.stall_seconds / (2 * mean);
  if (share >= 1) return mean;
  return std::sqrt(2 * costs.stall_seconds * mean) * (1 + std::sqrt(share) / 3 + share / 9) - costs.stall_seconds;
}

}  // namespace lockstep
