// What every unit of a model costs in a step, counted on `meta`: the same code, over tensors that are not there.
#pragma once
#include <vector>

#include "model/model.h"

namespace lockstep {

// In bytes of memory traffic that take as long: products by their operations, all else by what it reads and writes, on
// a machine that does so many operations in the time of a byte. Forward and both backwards of one micro-batch.
std::vector<double> unit_costs(const Model& model, Device runs_on);

}  // namespace lockstep
