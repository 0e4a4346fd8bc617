// memory.gathered = "auto": how much gathered weight may stay from a micro-batch's forward to its backward (ZeRO 3).
#pragma once
#include <cstdint>

#include "spec/run/run_spec.h"

namespace lockstep {

// In place of "auto", the number of MiB with which the most units stay while every rank takes no more than `available`
// bytes of its device; 0 where none may. Found with plans on meta (plan/plan.h), so that the run holds what was
// counted. A run that names a number stays as it is.
void resolve_gathered(RunSpec& spec, std::int64_t available);

}  // namespace lockstep
