// Runs a function as N ranks, each a thread, and reports what went wrong.
//
// Each rank gets its communicator and owns it. When one rank throws, every operation of all other ranks fails, so that
// they end as soon as they communicate. run_ranks returns when all have ended. It throws the first error in time that
// is not a mere consequence of another rank's, of the same kind (UserError, EnvironmentError, ProgramError; all others
// as EnvironmentError), with "rank 3: " before its message. Rank 0 runs in the calling thread; where it is the only
// rank, its error is thrown unchanged.
#pragma once
#include "comm/threads/world.h"

namespace lockstep {

void run_ranks(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& body, ThreadsOptions options = {});

}  // namespace lockstep
