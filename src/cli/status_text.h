// A run's status as a person reads it.
#pragma once
#include <string>

#include "telemetry/run_status.h"

namespace lockstep {

// A line for the run, one each for what is known of launch, goodput, the last fault, workers that were lost and slow
// ranks, then a table of hosts and one of ranks.
std::string status_text(const StatusOfRun& status);
// "91.2% of 1:02:03 in steps; lost 3.1%, recovery 2.0%": parts below a thousandth are left out.
std::string goodput_text(const Goodput& goodput);
// "lost 3 times, joined again 2 times; away: the worker of rank 1".
std::string workers_text(const WorkerRecord& workers);
// Ranks in order: "0-3, 6".
std::string ranges_text(const std::vector<int>& ranks);

}  // namespace lockstep
