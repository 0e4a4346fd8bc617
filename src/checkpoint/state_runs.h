// Runs of a logical tensor (spec/model/parameters.h) as the pieces of a state, and filled from whole values.
#pragma once
#include <span>
#include <string_view>

#include "checkpoint/state.h"
#include "tensor/stream.h"

namespace lockstep {

// One run of the tensor that is stored in `flat`: its elements there, flat, or as strided rows.
Tensor elements_of(const Run& run, const Tensor& flat);
StateTensor state_of(std::string_view part, const LogicalTensor& tensor, const Run& run, const Tensor& flat);

// Fills `flat` with what its runs are of all values of the tensor, which are on the host, contiguous, of any float
// type. What is between runs is padding, and becomes zero.
void upload_runs(const Tensor& flat, std::span<const Run> runs, const ConstTensor& values, Stream& stream);

}  // namespace lockstep
