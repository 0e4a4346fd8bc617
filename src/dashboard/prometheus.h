// The newest numbers of all runs in Prometheus' text exposition format (version 0.0.4), for GET /metrics.
//
// One family of series per number, one series per run, with the label run="its path"; times by use, bytes by tag and
// the state have a second label. A number that is not known has no sample. The names of metrics end with their unit.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "dashboard/run_summary.h"

namespace lockstep {

inline constexpr std::string_view kExpositionType = "text/plain; version=0.0.4; charset=utf-8";

std::string exposition(const std::vector<RunSummary>& runs);

// A label's value between its quotes: backslash, quote and end of line escaped, bytes that are not UTF-8 replaced.
std::string label_text(std::string_view value);

}  // namespace lockstep
