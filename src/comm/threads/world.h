// Ranks that are threads of one process (docs/design.md, "Ranks"): the default on one machine, and in tests.
//
// A world of N ranks gives each its communicator; what they call is done between their buffers in place, by whichever
// of them wait (threads/hall.h). Tensors are on the cpu. A rank fails with what wait() throws (comm/communicator.h):
// calls that do not match fail on all ranks at once, a rank that has ended or left is named at once, one that does not
// come when the deadline passes. The deadline of an operation counts from when it is first asked for or waited for.
#pragma once
#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace lockstep {

namespace threads {
class Hall;
}

struct ThreadsOptions {
  double deadline_seconds = 30;
  int helpers = 0;  // threads woken to share the work of one operation; 0: as many as there are cores
};

class ThreadsWorld {
 public:
  explicit ThreadsWorld(int ranks, ThreadsOptions options = {});
  ~ThreadsWorld();  // after all communicators and their Pendings

  // Of the group of all ranks, once for each rank. Any thread may ask, and use it from then on.
  std::unique_ptr<Communicator> communicator(int rank);

  // The rank will call nothing more; `how` goes into the words of those who wait for it ("rank 3 <how> and …").
  void end(int rank, const std::string& how = "has ended");
  // Everything that has not begun fails on all ranks, now and from now on.
  void abort(const std::string& reason);

 private:
  std::unique_ptr<threads::Hall> hall_;
};

}  // namespace lockstep
