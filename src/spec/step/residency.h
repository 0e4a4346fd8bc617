// When a unit's weights are whole, where each rank holds a shard of them: gathers and releases for a list of actions.
//
// The units that a phase reads are gathered before the previous phase that reads others, so that their weights can
// arrive while that one computes, and released after the last phase that reads them before others are needed: the units
// of two phases are whole at a time. Only the units that the shape keeps stay whole from a micro-batch's forward to its
// backward.
#pragma once
#include <vector>

#include "spec/step/actions.h"

namespace lockstep {

// The units that the shape keeps: of those of its stage that come before the model's last, the last ones.
std::vector<int> kept_units(const StepShape& shape);

// The list, which has none, with gathers and releases.
std::vector<Action> with_gathers(const std::vector<Action>& list, const StepShape& shape);

}  // namespace lockstep
