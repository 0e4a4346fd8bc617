// One clock for ranks whose clocks differ: the mean of all clocks, estimated from round trips, with an error that
// holds.
//
// The owner of the reference clock reads it (`sent`) and asks another rank, which answers with a reading of its own
// clock (`theirs`); then the reference is read again (`received`). The other clock was read at some moment between the
// two, however the delay was split between the two ways, so half the round trip bounds the error of its offset at the
// middle. Of several round trips the fastest counts. Two comparisons bound the drift: by the sum of their errors over
// the time between them.
//
// Clocks are linear: drifts of at most kMostDrift, that wander by at most kDriftWander. A clock that has wandered more
// is noticed when comparisons contradict each other, and its drift is estimated anew.
//
// Seconds everywhere. Pure arithmetic: who sends what is train/run_clock.h.
#pragma once
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

inline constexpr double kMostDrift = 500e-6;  // of a clock against true time
inline constexpr double kDriftWander = 1e-6;  // by which a drift may change between comparisons
// Of a clock against another one.
inline constexpr double kMostRelativeDrift = 2 * kMostDrift / (1 - kMostDrift);

struct RoundTrip {
  double sent = 0, theirs = 0, received = 0;
};

// A clock less the reference, as a line over the reference clock's readings.
struct ClockLine {
  double at = 0;        // the reading that the line starts from
  double offset = 0;    // there
  double drift = 0;     // seconds per second
  double error = 0;     // of the offset there: half the fastest round trip
  double residual = 0;  // that the drift may still be wrong by

  double offset_at(double reading) const { return offset + drift * (reading - at); }
  double error_at(double reading) const;
};

// One clock's line, over the comparisons so far.
class ClockEstimate {
 public:
  // The round trips of one comparison, at least one, all later than those before.
  void compare(std::span<const RoundTrip> trips);
  const ClockLine& line() const { return line_; }

 private:
  struct Comparison {
    double at = 0, offset = 0, error = 0;
  };
  void narrow_drift(const Comparison& then, const Comparison& now);

  std::optional<Comparison> first_, last_;  // since the drift was last estimated anew
  double least_ = -kMostRelativeDrift, most_ = kMostRelativeDrift;
  ClockLine line_;
};

// What turns readings of one clock into those of the mean of all clocks.
struct MeanClock {
  ClockLine own, mean;  // this clock, and the mean, less the reference
  double share = 1;     // of this clock in the mean

  double reading_of_mean(double own_reading) const;
  // How far that may be from the mean: growing with the residual drift times the time since the comparison.
  double error(double own_reading) const;
  double offset(double own_reading) const { return reading_of_mean(own_reading) - own_reading; }
  double drift() const { return mean.drift - own.drift; }

 private:
  double reference(double own_reading) const;
};

// Of all clocks; the first line is the reference's own, which is all zeros.
std::vector<MeanClock> mean_clocks(std::span<const ClockLine> lines);

}  // namespace lockstep
