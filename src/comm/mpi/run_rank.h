// Runs a body as this process's rank, and tells the other ranks what went wrong.
//
// The rank gets its communicator, which may have been asked for before, and owns it. When the body throws, every
// operation of all other ranks fails with its words ("rank 3 has failed: …"), and the error goes on to the caller, of
// the same kind (UserError, CommError, ProgramError; all others as EnvironmentError) and with "rank 3: " before its
// words. Where there is one rank alone, its error comes as it is.
#pragma once
#include <functional>

#include "comm/mpi/world.h"

namespace lockstep {

void run_rank(MpiWorld& world, std::unique_ptr<Communicator> ranks,
              const std::function<void(std::unique_ptr<Communicator>)>& body);
inline void run_rank(MpiWorld& world, const std::function<void(std::unique_ptr<Communicator>)>& body) {
  run_rank(world, world.communicator(), body);
}

}  // namespace lockstep
