// Ranks that are processes under MPI: comm/processes/world.h, with MPI between the hosts; made once.
//
// All MPI calls are made by the world's progress thread, from MPI_Init_thread to MPI_Finalize. `native` is MPI's own
// collective where it has one (comm/mpi/transport.h). Two ranks that share two groups begin their first native
// operations of those in the same order: MPI is told of a group then, which waits.
//
// A process of this host that runs a command which joins no ranks is named at once. A host that is gone as a whole is
// found by the deadline. After a failure with messages under way MPI_Finalize could hang, so it is not called: the
// process ends with the exit code it likes, and mpirun ends the others. mpirun also sends SIGTERM to all others as soon
// as one has died; a program that wants to say who it was handles that signal (cli/signals.h does).
#pragma once
#include "comm/processes/world.h"

namespace lockstep {

class MpiWorld final : public processes::World {
 public:
  // Whether a launcher of MPI has started this process.
  static bool launched();
  // This process, which was started so, runs a command that makes no world: whoever waits for it learns of it.
  static void will_not_join(const std::string& command);

  // Failure: UserError (usage) where a process will not join, CommError where one does not come. MPI cannot be left
  // while it starts: after either failure a thread of this process still waits there, until the process ends.
  explicit MpiWorld(ProcessOptions options = {});
};

}  // namespace lockstep
