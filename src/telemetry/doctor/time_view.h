// Where the time of the last steps went, by rank: what the rules of throughput read.
#pragma once
#include <map>
#include <vector>

#include "telemetry/run_reader.h"

namespace lockstep::doctor {

// Typical seconds of one rank in a step: medians over the steps, which a single slow one does not move.
struct RankTimes {
  TimesByUse uses;
  double busy = 0;     // neither waiting nor saving nor evaluating
  double delayed = 0;  // share of its time on a core that it was ready and had none; 0 where that is not known
  // What it would have taken with a core of its own.
  double work() const { return busy * (1 - delayed); }
};

struct TimeView {
  std::size_t steps = 0;  // that this is of
  double step = 0;        // seconds of a step, median
  TimesByUse shares;      // of the time, mean over ranks and steps; 1 in all
  double mfu = kUnknown;  // median
  double bubble = 0;      // median of what the steps recorded; where they did not, the share that ranks waited along pp
  std::map<int, RankTimes> ranks;
  std::map<std::string, std::int64_t> axes;  // ranks along each; 1 where it is not known, but all are along dp

  std::int64_t along(const std::string& axis) const;
  std::int64_t stage_of(int rank) const;
  // The least that any rank waits there, as a share of the step: the slowest rank waits for nobody, so this is what
  // messages take and not what others do.
  double least_wait(TimeUse wait) const;
  double delayed() const;  // mean over ranks
};

// Of the last kLastSteps steps, without the first two of the run, which also set things up.
inline constexpr std::size_t kLastSteps = 100, kFewestSteps = 5;
TimeView view_of_time(const RunRecords& run);

}  // namespace lockstep::doctor
