// What a run's resolved run file says, for a run folder without plan.json: fields that the plan has stay.
#pragma once
#include "spec/run/run_spec.h"
#include "telemetry/plan_file.h"

namespace lockstep {

void fill_plan(RunPlan& plan, const RunSpec& spec);

}  // namespace lockstep
