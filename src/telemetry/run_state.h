// Whether a run is alive, by its records.
#pragma once
#include <optional>
#include <string_view>

#include "telemetry/run_reader.h"

namespace lockstep {

enum class RunState {
  reading,   // its files are still being read
  starting,  // a process is there, and no step yet
  running,
  stalled,     // a process is there, and for long no step has ended
  recovering,  // a fault was found, and `lockstep launch` restarts the ranks
  waiting,     // `lockstep launch` waits for hosts
  stopped,     // nobody trains, and steps are missing
  ended,       // all steps are done, or the run ended in order
};
inline constexpr int kRunStates = 8;
std::string_view name_of(RunState state);

RunState state_of(const RunRecords& run);

// The state of launch.json while its agents are at work: nothing where there are none, where they have ended, or where
// the leading one has written nothing for kAgentLost seconds.
inline constexpr double kAgentLost = 10;
const LaunchState* launch_at_work(const RunRecords& run);

// Seconds per step over the last steps, whatever happened between them; NaN before the second.
double recent_pace(const RunRecords& run);

}  // namespace lockstep
