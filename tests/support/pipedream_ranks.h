// Pipelines without a flush over ranks as threads: a small run, and what it learned.
#pragma once
#include "support/serial_pipedream.h"

namespace lockstep::tests {

// In fp64, and it clips.
PipeDreamRun pipedream_run(const ModelSpec& spec, ScheduleKind kind, std::int64_t pp, std::int64_t micro,
                           std::int64_t dp = 1, std::int64_t tp = 1);

struct PipeDreamTrained {
  PipeDreamTrajectory run;
  std::map<std::string, int> stage_of;
};
// Two steps are in flight at a time, but for those that are drained.
PipeDreamTrained train_pipedream(const PipeDreamRun& run, Device device = Device::cpu);

}  // namespace lockstep::tests
