// Ranks that are processes (docs/design.md, "Ranks"): one world per process. MpiWorld (comm/mpi/world.h) and TcpWorld
// (comm/tcp/world.h) are worlds: they differ in how messages go between hosts, and in how the processes find each
// other.
//
// Ranks of one host exchange through shared memory (window.h, group.h); the first rank of a group on each host
// exchanges with the other hosts, over the transport (transport.h). The world's thread, the progress thread, makes the
// transport, and advances operations while nobody waits for them. Sums equal those of the threads backend bit for bit,
// wherever the ranks are; `native` is the transport's own collective where it has one.
//
// Memory: tensors in Communicator::memory() are summed in place by the ranks of a host (direct_plan.h); others go
// through slots of the shared memory. Every group shares group_bytes() on each host while it lives, in pages that have
// been touched; nothing of it is left behind however the processes end.
//
// wait() throws what failed (comm/communicator.h): calls that do not match, on all ranks at once; a process that is
// gone, on its own host within 50 ms ("rank 2 (process 123) is gone; …"); a rank that does not come when the deadline
// passes, named with its last call. The start has a deadline of its own, within which every process must have come.
// Across hosts the leaders tell each other of failures.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

struct ProcessOptions {
  double deadline_seconds = 30;
  // Of the start, which is that of processes, not only a wait for others: it is given at least this.
  double least_start_seconds = 10;
  // Of each half of a rank's staging, and of each rank's inbox where there are other hosts.
  std::int64_t slot_bytes = std::int64_t{1} << 19;  // so that what is staged stays in a cache
  // Whether ranks of a host may see each other's tensors, where those lie in Communicator::memory(). One that may not,
  // or is refused by the system, is enough: then every rank's go through the slots.
  bool see_tensors = true;
  // Bytes of a message; smaller ones go through the slots, where 8 KiB or less is quicker (one copy, nothing to look
  // up).
  std::int64_t least_seen = (std::int64_t{1} << 13) + 1;
  // By rank, any number that ranks of one host share; empty: by the hosts' names. Tests pretend to several hosts so.
  std::vector<int> hosts = {};
};

namespace processes {

class Transport;

class World {
 public:
  // Shared bytes on one host, at most, for a group of `ranks` ranks on `hosts` hosts, `here` of them on this one.
  static std::int64_t group_bytes(int ranks, int hosts, int here, const ProcessOptions& options = {});

  // After all communicators and their Pendings; all ranks come to it, or the deadline passes.
  virtual ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const;
  int size() const;
  int hosts() const;
  int local_rank() const;     // among the ranks of this host
  int local_size() const;     // ranks of this host; hosts may differ
  bool sees_tensors() const;  // all ranks, those of their hosts

  // Of the group of all ranks, "world"; once.
  std::unique_ptr<Communicator> communicator();
  // Everything that is not done fails on all ranks, now and from now on: they throw this failure.
  void abort(const CommFailure& failure);

 protected:
  struct Start {
    std::function<std::unique_ptr<Transport>()> transport;  // called in the progress thread
    std::function<void()> check = [] {};                    // called now and then until all have come; may throw
    // What is wrong when they have not come within this; none: the transport's gathers have a deadline of their own.
    std::function<std::string(double seconds)> late = {};
  };
  // Where it fails before all have come, a thread of this process may still wait, until the process ends.
  World(ProcessOptions options, Start start);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace processes
}  // namespace lockstep
