// The communicator of one process in one group, over the engine.
#pragma once
#include "comm/communicator.h"
#include "comm/processes/engine.h"

namespace lockstep::processes {

// The engine outlives it and its Pendings; the group is the engine's and is left when this goes.
std::unique_ptr<Communicator> member_of(Engine& engine, std::shared_ptr<ProcessGroup> group);

}  // namespace lockstep::processes
