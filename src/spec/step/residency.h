// When a unit's weights are whole, where each rank holds a part of them: gathers and releases for a list of actions.
//
// A unit that a phase reads is gathered before the phase before it that reads others, so that its weights can come
// while that one computes, and released behind the last phase that reads it before others are wanted: two phases' units
// are whole at a time. Only the units that the shape keeps stay whole from a micro-batch's forward to its backward.
#pragma once
#include <vector>

#include "spec/step/actions.h"

namespace lockstep {

// The units that the shape keeps: of those of its stage that come before the model's last, the last ones.
std::vector<int> kept_units(const StepShape& shape);

// The list, which has none, with gathers and releases.
std::vector<Action> with_gathers(const std::vector<Action>& list, const StepShape& shape);

}  // namespace lockstep
