#include "telemetry/time_account.h"

#include <numeric>

namespace lockstep {

double TimesByUse::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

double TimesByUse::waited() const {
  double sum = 0;
  for (int use = 0; use < kTimeUses; ++use)
    if (is_wait(static_cast<TimeUse>(use))) sum += seconds[static_cast<std::size_t>(use)];
  return sum;
}

TimesByUse TimeAccount::take() {
  if (marker_) return {};
  const Clock::time_point now = Clock::now();
  spent_[static_cast<std::size_t>(current_)] += now - std::exchange(since_, now);
  TimesByUse times;
  for (std::size_t use = 0; use < spent_.size(); ++use)
    times.seconds[use] = std::chrono::duration<double>(std::exchange(spent_[use], {})).count();
  return times;
}

}  // namespace lockstep
