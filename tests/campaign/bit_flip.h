// A bit of a rank's state that flips in its memory, as a fault of the memory would do it.
//
// Runs that may have this fault have a vocabulary twice as large as their data's, so that half of the embedding never
// changes and can be found in a process by what it holds; and they check their state (run.check_state).
#pragma once
#include <string>
#include <vector>

#include "campaign/inject.h"

namespace lockstep::tests {

// The settings of such a run, as arguments of train.
std::vector<std::string> settings_for_bit_flips();

// In one process that has such rows, drawn: every copy of them that it has. Where a copy is that nothing reads any
// more, nothing follows.
void flip_a_bit(CampaignRun& run, Draws& draws, Injection& injection);

}  // namespace lockstep::tests
