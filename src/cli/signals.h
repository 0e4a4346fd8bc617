// Ctrl-C and SIGTERM as a wish to end, for commands that have something to bring to an end.
#pragma once
#include <atomic>

namespace lockstep {

// From now on the first signal sets the flag that is returned, and the second ends the process at once with 130.
const std::atomic<bool>& listen_for_signals();

}  // namespace lockstep
