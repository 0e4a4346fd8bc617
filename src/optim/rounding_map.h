// Which element of which tensor is where in a unit's flat buffers, for states that are rounded by chance
// (kernels/stochastic_rounding.h).
//
// A tensor's key is made of its name, so it is the same in every layout. Places are those of the whole unit as this
// rank stores it: a shard says where in it it begins. Tied parameters have no state and no runs.
#pragma once
#include <vector>

#include "kernels/stochastic_rounding.h"
#include "spec/model/parameters.h"

namespace lockstep {

std::vector<RoundingRun> rounding_map(const UnitLayout& layout);

}  // namespace lockstep
