// What takes this process's operations forward, and fails them.
//
// One mutex guards all of it. The thread that waits for an operation does the work itself: it takes every operation of
// the process as far as it goes, and sleeps on the process's bell when none goes on (after a short spin where each
// process can have a core). Else the progress thread does so, called by the bell: so an operation goes on while its
// rank computes. A step of an operation waits for nothing and moves at most a slot's worth of elements, or a piece of
// an operation without slots: the rank's own thread never waits longer for the engine.
//
// Failure. A group's words are in its window: the first rank of a host to fail writes them, and hosts tell each other
// by MPI; every later call fails with the same. Who waits looks up every few milliseconds: a process that is gone
// (pidfd) ends the world with its name; a rank that has left or ended fails the groups that wait for it; who has not
// come when the deadline passes is named. A step that others have been waiting for is made first, so that an
// operation all ranks have come to ends well even if one of them goes right after it.
#pragma once
#include <mutex>

#include "comm/mpi/operation.h"
#include "comm/mpi/plan.h"

namespace lockstep::mpi {

// The processes of this host, watched.
class Watch {
 public:
  Watch(HostWindow& host, int own_place);
  ~Watch();
  Watch(const Watch&) = delete;
  // The place of a process that is gone without having ended; -1: none.
  int gone() const;

 private:
  HostWindow& host_;
  std::vector<std::pair<int, int>> others_;  // place, pidfd
};

class Engine {
 public:
  struct World {  // what every rank knows of all
    int rank;
    std::vector<int> hosts;   // by rank: its host
    std::vector<int> places;  // by rank: its place in its host's lobby
    std::int64_t slot_bytes, least_seen;
    double deadline_seconds;
  };
  // `files`: null where the processes of a host cannot see each other's tensors, anywhere in the world.
  Engine(World world, HostWindow& host, Wire& wire, Stream& stream, std::unique_ptr<SharedFiles> files);

  using GroupPointer = std::shared_ptr<Group>;
  struct Division {
    std::string name;
    std::vector<int> members;  // ranks of the world
    int rank;                  // this process's in the group
    std::uint64_t key;
  };
  // Fails (CommError) where another rank of this host has divided `parent` otherwise.
  GroupPointer open(const Division& division, Group* parent);
  void close(const GroupPointer& group) noexcept;

  std::shared_ptr<Operation> start(Group& group, const Message& message);
  bool ask(Operation& operation, Clock::time_point deadline);
  void wait(Operation& operation, Clock::time_point deadline);
  void give_up(Operation& operation) noexcept;
  std::string missing(Operation& operation);
  double deadline() const { return world_.deadline_seconds; }

  void abort(const Failure& failure, bool tell = true);
  void hear(const Notice& notice);  // from another host
  bool failed();                    // the world, or any group that was
  int gone() const { return watch_.gone(); }

  // Of tensors that the others of this host can see; null where they cannot.
  std::unique_ptr<Memory> memory(const Group& group, Ledger& ledger) const;

  // The progress thread's part: whether there is more to be done at once.
  bool serve();
  Bell& bell() { return own_.bell; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  Lock enter();        // the rank's own thread
  bool advance_all();  // whether something can go on at once
  void advance(Group& group);
  void advance_lines(Group& group);
  void adopt_failure(Group& group);
  void end(Operation& operation, const Failure& failure);
  void fail(Group& group, const Failure& failure, bool tell = true);
  void look_around();
  void look_for_leavers(Group& group);
  void fail_late(Operation& operation, Clock::time_point deadline);
  std::string who_is_missing(const Operation& operation, const std::string& until_when) const;
  std::vector<int> asleep() const;  // ranks of this host whose processes stand still
  std::string whereabouts(const Group& group) const;
  std::string last_call(int world_rank) const;
  Citizen* citizen(int world_rank) const;  // null: of another host
  std::vector<int> elsewhere(const std::vector<int>& ranks) const;
  Clock::duration nap(Clock::time_point deadline) const;

  const World world_;
  HostWindow& host_;
  Wire& wire_;
  WideSum wide_sum_;
  const std::unique_ptr<SharedFiles> files_;
  Citizen& own_;
  Watch watch_;
  const bool spins_;
  std::mutex mutex_;
  std::atomic<int> wanted_ = 0;  // by the rank's own thread
  std::vector<GroupPointer> groups_;
  std::map<std::uint64_t, Failure> notices_;  // of groups this rank has not opened yet
  bool failed_ = false;
};

}  // namespace lockstep::mpi
