// Runs a body as N ranks, each a thread, and brings back what went wrong.
//
// Each rank gets its communicator and owns it. When a body throws, every operation of all other ranks fails, so that
// they end too, as soon as they communicate; run_ranks returns when all have ended, and throws the first error in time
// that is not a mere consequence of another's, of the same kind (UserError, EnvironmentError, ProgramError; all others
// as EnvironmentError) and with "rank 3: " before its words. Rank 0 runs in the calling thread; where it is the only
// one, its error comes as it is.
#pragma once
#include "comm/threads/world.h"

namespace lockstep {

void run_ranks(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& body, ThreadsOptions options = {});

}  // namespace lockstep
