// Runs a function as this process's rank, and tells the other ranks what went wrong.
//
// The rank gets its communicator, which may have been asked for before, and owns it. When the function throws, every
// operation of all other ranks fails with its message ("rank 3 has failed: …"), and the error is thrown to the caller,
// of the same kind (UserError, CommError, ProgramError; all others as EnvironmentError), with "rank 3: " before its
// message. Where there is only one rank, its error is thrown unchanged.
#pragma once
#include <functional>

#include "comm/processes/world.h"

namespace lockstep {

void run_rank(processes::World& world, std::unique_ptr<Communicator> ranks,
              const std::function<void(std::unique_ptr<Communicator>)>& body);
inline void run_rank(processes::World& world, const std::function<void(std::unique_ptr<Communicator>)>& body) {
  run_rank(world, world.communicator(), body);
}

}  // namespace lockstep
