// Advances this process's operations, and fails them.
//
// One mutex guards all of it. The thread that waits for an operation does the work itself: it advances every operation
// of the process as far as it goes, and sleeps when none can advance (after a short spin where each process can have a
// core: comm/wait_policy.h). While no thread waits the progress thread does so, woken by other processes (wakeup.h): so
// an operation advances while its rank computes. A step of an operation waits for nothing and moves at most a slot's
// worth of elements, or a piece of an operation without slots: the rank's own thread never waits longer for the engine.
//
// Failure. A group's failure is in its window: the first rank of a host to fail writes it, and hosts tell each other by
// the transport; every later call fails with the same message. A thread that waits checks every few milliseconds: a
// process that is gone (pidfd) ends the world and is named; a rank that has left or ended fails the groups that wait
// for it; a rank that has not come when the deadline passes is named. A step that others have been waiting for is made
// first, so that an operation all ranks have arrived at ends well even if one of them goes right after it.
#pragma once
#include <mutex>

#include "comm/processes/collective_plan.h"
#include "comm/processes/operation.h"

namespace lockstep::processes {

// The processes of this host, watched.
class ProcessWatch {
 public:
  ProcessWatch(HostWindow& host, int own_slot);
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  // The slot of a process that is gone without having ended; -1: none.
  int gone() const;

 private:
  HostWindow& host_;
  std::vector<std::pair<int, int>> others_;  // slot, pidfd
};

class Engine {
 public:
  struct World {  // what every rank knows of all
    int rank;
    std::vector<int> hosts;          // by rank: its host
    std::vector<int> process_slots;  // by rank: its slot on its host
    std::int64_t slot_bytes, least_seen;
    double deadline_seconds;
  };
  // `files`: null where the processes of a host cannot see each other's tensors, anywhere in the world.
  Engine(World world, HostWindow& host, Transport& transport, Stream& stream, std::unique_ptr<SharedFiles> files);

  using GroupPointer = std::shared_ptr<ProcessGroup>;
  struct Division {
    std::string name;
    std::vector<int> members;  // ranks of the world
    int rank;                  // this process's in the group
    std::uint64_t key;
  };
  // Fails (CommError) where another rank of this host has divided `parent` otherwise.
  GroupPointer open(const Division& division, ProcessGroup* parent);
  void close(const GroupPointer& group) noexcept;

  std::shared_ptr<Operation> start(ProcessGroup& group, const Message& message);
  bool test(Operation& operation, Clock::time_point deadline);
  void wait(Operation& operation, Clock::time_point deadline);
  void abandon(Operation& operation) noexcept;
  std::string missing(Operation& operation);
  double deadline() const { return world_.deadline_seconds; }

  void abort(const CommFailure& failure, bool tell = true);
  void handle(const FailureNotice& notice);  // from another host
  bool failed();                             // the world, or any group that was
  int gone() const { return watch_.gone(); }

  // Of tensors that the others of this host can see; null where they cannot.
  std::unique_ptr<Memory> memory(const ProcessGroup& group, Ledger& ledger) const;

  // The progress thread's part: whether there is more to be done at once.
  bool serve();
  Wakeup& wakeup() { return own_.wakeup; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  Lock enter();        // the rank's own thread
  bool advance_all();  // whether something can advance at once
  void advance(ProcessGroup& group);
  void advance_queues(ProcessGroup& group);
  void adopt_failure(ProcessGroup& group);
  void end(Operation& operation, const CommFailure& failure);
  void fail(ProcessGroup& group, const CommFailure& failure, bool tell = true);
  void detect_failures();
  void detect_leavers(ProcessGroup& group);
  void fail_late(Operation& operation, Clock::time_point deadline);
  std::string who_is_missing(const Operation& operation, const std::string& until_when) const;
  std::vector<int> asleep() const;  // ranks of this host whose processes hang
  std::string last_calls(const ProcessGroup& group) const;
  std::string last_call(int world_rank) const;
  ProcessSlot* process_slot(int world_rank) const;  // null: of another host
  std::vector<int> elsewhere(const std::vector<int>& ranks) const;
  Clock::duration sleep_limit(Clock::time_point deadline) const;

  const World world_;
  HostWindow& host_;
  Transport& transport_;
  WideSum wide_sum_;
  const std::unique_ptr<SharedFiles> files_;
  ProcessSlot& own_;
  ProcessWatch watch_;
  const bool spins_;
  std::mutex mutex_;
  std::atomic<int> wanted_ = 0;  // by the rank's own thread
  std::vector<GroupPointer> groups_;
  std::map<std::uint64_t, CommFailure> notices_;  // to groups this rank has not opened yet
  bool failed_ = false;
};

}  // namespace lockstep::processes
