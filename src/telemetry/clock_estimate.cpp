#include "telemetry/clock_estimate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lockstep {

namespace {
constexpr double kRounding = 1e-15;  // of a reading, by the arithmetic here
}

double ClockLine::error_at(double reading) const { return error + residual * std::abs(reading - at); }

void ClockEstimate::narrow_drift(const Comparison& then, const Comparison& now) {
  const double gap = now.at - then.at;
  if (!(gap > 0)) return;
  const double drift = (now.offset - then.offset) / gap;
  const double width = (now.error + then.error) / gap + kDriftWander / 2;
  least_ = std::max(least_, drift - width);
  most_ = std::min(most_, drift + width);
}

void ClockEstimate::compare(std::span<const RoundTrip> trips) {
  LOCKSTEP_CHECK(!trips.empty(), "a comparison without a round trip");
  const RoundTrip& fastest =
      *std::ranges::min_element(trips, {}, [](const RoundTrip& trip) { return trip.received - trip.sent; });
  const double middle = fastest.sent + (fastest.received - fastest.sent) / 2;
  const double half = (fastest.received - fastest.sent) / 2;
  // The other clock was read up to half a round trip from the middle, and has drifted in that time.
  const Comparison now{middle, fastest.theirs - middle, half * (1 + kMostRelativeDrift)};
  if (last_) {
    narrow_drift(*first_, now);
    narrow_drift(*last_, now);
    if (least_ > most_) {  // it has wandered: what was known of the drift is of the past
      least_ = -kMostRelativeDrift, most_ = kMostRelativeDrift;
      first_ = last_;
      narrow_drift(*last_, now);
      if (least_ > most_) least_ = -kMostRelativeDrift, most_ = kMostRelativeDrift;
    }
  } else {
    first_ = now;
  }
  last_ = now;
  line_ = {.at = now.at,
           .offset = now.offset,
           .drift = (least_ + most_) / 2,
           .error = now.error,
           .residual = (most_ - least_) / 2 + kDriftWander / 2};
}

// own reading = s + offset + drift (s - at), solved for s.
double MeanClock::reference(double own_reading) const {
  return own.at + (own_reading - own.at - own.offset) / (1 + own.drift);
}

double MeanClock::reading_of_mean(double own_reading) const {
  const double s = reference(own_reading);
  return own_reading + mean.offset_at(s) - own.offset_at(s);
}

// The mean less this clock is (sum of the others' lines) / N - (1 - 1/N) of its own. `mean.error` has 1/N of its own
// error already. The reading of the reference is known as well as its own line, and the slope there is a drift.
double MeanClock::error(double own_reading) const {
  const double s = reference(own_reading);
  const double of_own = own.error_at(s);
  return mean.error_at(s) + std::max(0.0, 1 - 2 * share) * of_own + 2 * kMostRelativeDrift * of_own +
         kRounding * std::abs(own_reading);
}

std::vector<MeanClock> mean_clocks(std::span<const ClockLine> lines) {
  const double share = 1 / static_cast<double>(lines.size());
  ClockLine mean{.at = lines.back().at};  // the clock that was compared last
  for (const ClockLine& line : lines) {
    mean.offset += share * line.offset_at(mean.at);
    mean.drift += share * line.drift;
    mean.error += share * line.error_at(mean.at);
    mean.residual += share * line.residual;
  }
  std::vector<MeanClock> clocks;
  for (const ClockLine& line : lines) clocks.push_back({.own = line, .mean = mean, .share = share});
  return clocks;
}

}  // namespace lockstep
