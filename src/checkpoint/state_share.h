// Splits the writing of a checkpoint between ranks that hold the same state.
#pragma once
#include <span>
#include <vector>

#include "checkpoint/state.h"

namespace lockstep {

// The pieces of `state` that one of `ranks` writes: views of the same elements. All ranks give the same state, each on
// its own device, in the same order; together their shares cover it exactly. Shares are equal in bytes to less than 256
// elements, or one row: the state, laid end to end, is split into equal parts, and each cut that falls inside of a
// tensor is moved back to where a multiple of 256 of its elements ends, or to where the piece begins; inside strided
// rows, to where a row ends. Alone, all of it.
std::vector<StateTensor> share_of_state(std::span<const StateTensor> state, int rank, int ranks);

}  // namespace lockstep
