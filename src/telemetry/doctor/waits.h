// The rules of throughput about what ranks wait for: each other, or messages.
#pragma once
#include <vector>

#include "telemetry/doctor/doctor.h"
#include "telemetry/doctor/time_view.h"

namespace lockstep::doctor {

void find_slow_rank(const RunRecords& run, const TimeView& view, std::vector<Finding>& findings);
void find_imbalance(const TimeView& view, std::vector<Finding>& findings);
void find_bubble(const RunRecords& run, const TimeView& view, std::vector<Finding>& findings);
void find_slow_links(const RunRecords& run, const TimeView& view, std::vector<Finding>& findings);

}  // namespace lockstep::doctor
