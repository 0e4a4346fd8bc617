// Ranks that are threads of one process (docs/design.md, "Ranks"): the default on one machine, and in tests.
//
// A world of N ranks gives each its communicator. Operations work in place between the ranks' buffers and are run by
// whichever ranks wait (threads/rendezvous.h). Tensors are on the cpu, or, for ranks that share a GPU, there
// (on_stream). wait() throws what failed (comm/communicator.h): calls that do not match fail on all ranks at once; a
// rank that has ended or left is named at once; a rank that does not come is named when the deadline passes. The
// deadline of an operation counts from when it is first tested or waited for.
#pragma once
#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace lockstep {

namespace threads {
class Rendezvous;
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

  // The rank will call nothing more; `how` goes into the error message of those who wait for it ("rank 3 <how> and …").
  void end(int rank, const std::string& how = "has ended");
  // Everything that has not begun fails on all ranks, now and from now on.
  void abort(const std::string& reason);

 private:
  std::unique_ptr<threads::Rendezvous> rendezvous_;
};

// The same rank of the same group on a device that it computes on in a stream: a GPU that the ranks share, each with a
// stream (and memory) of its own, which outlives the communicator. All ranks of a group do so before their first call;
// groups split from it are of that stream too. Bits are those of the cpu.
//
// An operation begins when every rank's stream has come to where that rank started it, and runs in a stream of the
// group's own, beside what the ranks compute. wait() returns when the last rank has started it (that is what the
// deadline is for), not when it is done: it makes the rank's stream wait. done() says whether the device has done it.
// Nothing can hold it up once all have arrived; a call that the device refuses fails the group and is thrown by wait();
// a fault of the device itself shows at the next call or synchronize(), as everything in a stream does.
std::unique_ptr<Communicator> on_stream(std::unique_ptr<Communicator> comm, Stream& compute);

}  // namespace lockstep
