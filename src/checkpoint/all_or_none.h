// Work that all ranks do and that succeeds on all of them or on none.
//
// Used by checkpoints and by checks before a run. Each rank does its part and then waits for the others, whatever came
// of it; no rank continues before all are done. So after a failure no rank is still at work on what another one now
// removes.
//
// The ranks need share no memory: what they tell each other goes through the communicator, whose tensors are on the
// host. The work runs in a thread of its own. While it lasts, a rank gives the others a sign every second, so that one
// may take much longer than the others, and one that hangs is noticed when the communicator's deadline passes. With no
// communicator, or a group of one, the work runs in the calling thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

// What the work of each rank returned, by rank, on all of them: any bytes.
//
// Failure: a rank whose work threw throws that. The others throw a CommError that names it, "rank 2: <its message>",
// the lowest if there are several, and is secondary (comm/error.h); the group stays of use. A rank that does not come
// fails the group, as everywhere.
std::vector<std::string> all_or_none(Communicator* ranks, const std::function<std::string()>& work);

}  // namespace lockstep
