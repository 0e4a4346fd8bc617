// A step's actions drawn as text: a line a unit, a column a phase.
//
//   F I W  forward, backward-input, backward-weight of the unit; N norm; U update
//   =      its weights are whole here, and another unit computes
//   s      its gradient was reduced before this column: the sum is under way
//   p      its weights are being published
//   .      nothing
//
// Of several micro-batches the first and the last are drawn.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "spec/step/actions.h"

namespace lockstep {

std::string picture_of(const std::vector<Action>& actions, const StepShape& shape,
                       std::span<const std::string> unit_names);

}  // namespace lockstep
