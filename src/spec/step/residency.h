// When a unit's weights are whole, where each rank holds a shard of them: gathers and releases for a list of actions.
//
// The units that a phase reads are gathered before the previous phase that reads others (with a prefetch of n, the n-th
// before it; of none, right before the phase itself), so that their weights can arrive while that one computes, and
// released after the last phase that reads them before others are needed: with a prefetch of 1 the units of two phases
// are whole at a time. Only the units that the shape keeps stay whole from a micro-batch's forward to its backward.
//
// Units of a bundle (spec/layout/wrap_rule.h) are gathered together, when the first of them is needed; each is released
// by itself, as soon as it is not needed. Gathers that follow each other in the list are one call (goes_with_next).
#pragma once
#include <vector>

#include "spec/step/actions.h"

namespace lockstep {

// The units that the shape keeps: of those of its stage that come before the model's last, the last ones.
std::vector<int> kept_units(const StepShape& shape);

// The list with the reductions of a bundle and micro-batch moved to the last of them.
std::vector<Action> with_bundled_reductions(const std::vector<Action>& list, const StepShape& shape);

// The list, which has none, with gathers and releases.
std::vector<Action> with_gathers(const std::vector<Action>& list, const StepShape& shape);

}  // namespace lockstep
