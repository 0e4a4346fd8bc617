// Work that all ranks do, and all succeed at or none.
//
// Each rank does its part and then meets the others, whether it succeeded or not; no rank continues before all are
// done. So after a failure no rank is still at work on what another one now removes.
//
// The ranks need share no memory: they exchange text through the communicator, whose tensors are on the host. The work
// runs in a thread of its own; while it lasts, a rank sends the others a sign of life every second. So one may take
// much longer than the others, and one that hangs is noticed when the communicator's deadline passes. With no ranks, or
// a group of one, the work runs in the calling thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

// What the work of each rank returned, by rank, on all of them: any bytes.
//
// Failure: a rank whose work threw rethrows that. The others throw a CommError that names it, "rank 2: <its message>",
// the lowest if there are several, and is secondary (comm/error.h); the group stays usable. A rank that does not come
// fails the group, as everywhere.
std::vector<std::string> together(Communicator* ranks, const std::function<std::string()>& work);

}  // namespace lockstep
