// The end of a rank's process, in words.
#pragma once
#include <string>

#include "launch/epoch.h"

namespace lockstep {

// Not by a second Ctrl-C, which is the user's.
bool by_signal(const RankEnd& end);
// "was ended by signal 9 (Killed)", "has ended with exit code 5", or why its agent takes it for hung.
std::string how_it_ended(const RankEnd& end);

}  // namespace lockstep
