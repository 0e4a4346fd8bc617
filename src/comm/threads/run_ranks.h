// Runs a body as N ranks, each a thread, and brings back what went wrong.
//
// Each rank gets its communicator and owns it. When a body throws, every operation of all other ranks fails, so that
// they end too, as soon as they communicate; run_ranks returns when all have ended, and throws the first error in time
// that is not a mere consequence of another's, of the same kind (UserError, EnvironmentError, ProgramError; all others
// as EnvironmentError) and with "rank 3: " before its words. One rank runs in the calling thread.
#pragma once
#include "comm/threads/world.h"

namespace lockstep {

void run_ranks(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& body, ThreadsOptions options = {});

}  // namespace lockstep
