// The processes that a test program under mpirun is one of.
#pragma once
#include "comm/mpi/world.h"

namespace lockstep::tests {

// What the command line asks of the world: --hosts=0,0,1 --slot=4096 --deadline=5.
MpiOptions options_of(int argc, char** argv);

class Processes {
 public:
  // Between main's beginning and end.
  static Communicator& world();
  static MpiWorld& mpi();
  static const MpiOptions& options();
};

// This process's part in a drill (drill.cpp), what it has to say added to the report; its exit status.
int run_drill(const std::string& drill, const std::string& report, const MpiOptions& options);

}  // namespace lockstep::tests
