// Kills workers of a launched asynchronous run, one after the other at random moments, and looks at what becomes of it.
#pragma once
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace lockstep::tests {

// By rank: the processes that an agent of `launch` has started and that are there.
std::map<int, pid_t> ranks_of(pid_t agent);
// Waited for, then sent the signal. False: it does not come.
bool signal_rank(pid_t agent, int rank, int signal);

struct WorkerKills {
  std::string layout;  // of 2 workers or more
  int kills = 5;
  unsigned seed = 1;
  std::vector<std::string> more = {};  // for launch and its repetition
};

// Nothing but what is wrong, one line each: a process that ended though nobody killed it, a ticket that was not applied
// once, steps that stood still, an evaluation loss that does not fall, other bits than the same order gives without a
// death.
std::vector<std::string> kill_workers(const WorkerKills& how);

}  // namespace lockstep::tests
