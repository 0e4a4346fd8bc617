// Training with optimizer state on a disk that is killed in the middle of updates, again and again.
#pragma once
#include <string>

namespace lockstep::tests {

// Kills a run with SIGKILL this many times, each while a window of offloaded state is read or written, and resumes it
// each time; then lets it end. What went wrong, or nothing: a kill that came outside of steps, something left in the
// folder of offloaded state or of the run, losses or checkpoints other than those of a run that was never killed and
// offloads nothing.
std::string killed_updates(int kills, const std::string& layout);

}  // namespace lockstep::tests
