// Ranks that are processes under MPI (docs/design.md, "Ranks"): one world per process, made once.
//
// Ranks of one host exchange through shared memory (mpi/window.h, mpi/group.h); the first rank of a group on each host
// exchanges with the other hosts. All MPI calls are made by one thread, the progress thread, from MPI_Init_thread to
// MPI_Finalize; it also advances operations while nobody waits for them. Sums equal those of the threads backend bit
// for bit, wherever the ranks are; `native` is MPI's own collective where it has one (mpi/transport.h). Two ranks that
// share two groups begin their first native operations of those in the same order: MPI is told of a group then, which
// waits.
//
// Memory: tensors in Communicator::memory() are summed in place by the ranks of a host (mpi/direct_plan.h); others go
// through slots of the shared memory. Every group shares group_bytes() on each host while it lives, in pages that have
// been touched; nothing of it is left behind however the processes end.
//
// wait() throws what failed (comm/communicator.h): calls that do not match, on all ranks at once; a process that is
// gone, on its own host within 50 ms ("rank 2 (process 123) is gone; …"); a rank that does not come when the deadline
// passes, named with its last call. The start has a deadline of its own, within which every process must have come: a
// process of this host that runs a command which joins no ranks is named at once. Across hosts the leaders tell each
// other of failures; a host that is gone as a whole is found by the deadline. After a failure with messages under way
// MPI_Finalize could hang, so it is not called: the process ends with the exit code it likes, and mpirun ends the
// others. mpirun also sends SIGTERM to all others as soon as one has died; a program that wants to say who it was
// handles that signal (cli/signals.h does).
#pragma once
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

struct MpiOptions {
  double deadline_seconds = 30;
  // Of the start, which is MPI's own and that of processes, not only a wait for others: it is given at least this.
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

class MpiWorld {
 public:
  // Whether a launcher of MPI has started this process.
  static bool launched();
  // This process, which was started so, runs a command that makes no world: whoever waits for it learns of it.
  static void will_not_join(const std::string& command);
  // Shared bytes on one host, at most, for a group of `ranks` ranks on `hosts` hosts, `here` of them on this one.
  static std::int64_t group_bytes(int ranks, int hosts, int here, const MpiOptions& options = {});

  // Failure: UserError (usage) where a process will not join, CommError where one does not come. MPI cannot be left
  // while it starts: after either failure a thread of this process still waits there, until the process ends.
  explicit MpiWorld(MpiOptions options = {});
  ~MpiWorld();  // after all communicators and their Pendings; all ranks come to it, or the deadline passes

  int rank() const;
  int size() const;
  int hosts() const;
  int local_rank() const;     // among the ranks of this host
  int local_size() const;     // ranks of this host; hosts may differ
  bool sees_tensors() const;  // all ranks, those of their hosts

  // Of the group of all ranks, "world"; once.
  std::unique_ptr<Communicator> communicator();
  // Everything that is not done fails on all ranks, now and from now on.
  void abort(const std::string& reason);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
