// Where ranks that are threads of one process meet to communicate: the shared state behind threads/world.h.
//
// A PendingOperation is one operation of one group. Ranks arrive with their calls. The last rank to arrive makes the
// plan of the sums and copies (threads/buffer_plan.h), and the pieces of that plan are run by whichever threads are
// waiting for anything at all. So a rank that has started an operation can compute while others do the work, and many
// ranks share few cores without spinning. (Where each rank can have a core, a thread with nothing to do spins briefly
// before it sleeps: comm/wait_policy.h.) The last rank to arrive at a small operation runs it at once. Ranks take
// pieces from both ends, each from its own, so that of tensors that are summed again and again a core has the same part
// in its cache.
//
// Operations of a queue (the collectives of a group, or the messages from one rank to another) run one after the other.
// One mutex guards all that the ranks share; pieces run outside of it. A failure is kept with the group: every
// operation that had not begun fails with the message that wait() will throw, and what runs is run to its end, since
// pieces wait for nothing. An operation lives until every rank that arrived has released it.
//
// Where ranks compute in streams, a call comes with an event of its rank's stream, and the only piece of an operation
// is to give its plan to the group's stream (threads/group_stream.h). It is over when that has been done; the event
// `completed` says when the device has done it too. The last rank to arrive does this at once.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "comm/error.h"
#include "comm/threads/buffer_plan.h"
#include "comm/threads/group_stream.h"
#include "comm/wait_policy.h"

namespace lockstep::threads {

using waiting::Clock;

struct ThreadGroup;
struct OperationQueue;

struct PendingOperation {
  enum class State : std::uint8_t { waiting, running, done, failed };

  ThreadGroup& group;
  OperationQueue& queue;
  std::uint64_t sequence;
  std::vector<int> ranks;                     // that must arrive, as ranks of the group
  std::vector<std::optional<Message>> calls;  // of each of them
  int arrived = 0;
  int holders = 0;  // ranks that have arrived and not released it
  State state = State::waiting;
  BufferPlan plan = {};
  std::int64_t first = 0, last = 0;  // pieces that threads have taken, from the first on and from the last
  std::int64_t finished = 0;
  CommFailure failure = {};
  std::vector<Event*> ready = {};         // by call, where ranks compute in streams: where each rank's stream was
  std::shared_ptr<Event> completed = {};  // there: reached when the device has done it

  bool in_stream() const { return !ready.empty(); }
  bool complete() const { return arrived == static_cast<int>(ranks.size()); }
  bool over() const { return state == State::done || state == State::failed; }
  std::int64_t unclaimed() const { return plan.pieces() - first - last; }
  bool has_work() const { return state == State::running && unclaimed() > 0; }
};

struct OperationQueue {
  std::uint64_t next = 1;  // number of the operation whose turn it is
  std::map<std::uint64_t, std::unique_ptr<PendingOperation>> operations = {};
};

struct ThreadGroup {
  std::string name;
  std::vector<int> members;  // ranks of the world
  ThreadGroup* parent = nullptr;
  std::vector<char> joined = {}, left = {};  // by rank: has, or had, a communicator; has it no more
  std::optional<CommFailure> failure = {};
  std::unique_ptr<GroupStream> stream = {};  // where ranks compute in streams
  OperationQueue collectives = {};
  std::map<std::pair<int, int>, OperationQueue> pairs = {};                // from, to
  std::vector<int> splits = {};                                            // by rank: how often it has split this group
  std::map<std::pair<int, int>, std::unique_ptr<ThreadGroup>> parts = {};  // which split, color
};

// The group and all that were split from it; all operations of a group.
void each_group(ThreadGroup& group, const std::function<void(ThreadGroup&)>& each);
void each_operation(ThreadGroup& group, const std::function<void(PendingOperation&)>& each);

class Rendezvous {
 public:
  Rendezvous(int ranks, double deadline_seconds, int helpers);

  ThreadGroup& world() { return world_; }
  double deadline() const { return deadline_; }

  // A rank gets its communicator of a group, and destroys it.
  void join(ThreadGroup& group, int rank);
  void leave(ThreadGroup& group, int rank) noexcept;
  // The part of a group in which this rank has that color. Its members must be those that the others gave.
  ThreadGroup& split(ThreadGroup& group, int rank, int color, std::vector<int> members, const std::string& name);

  // The ranks of this group compute in streams of that device from now on; every rank says so before it calls.
  void run_in_stream(ThreadGroup& group, Device device);

  // A rank's call. The event is of a rank that computes in a stream, and lives until the rank releases the operation.
  struct Call {
    const Message& message;
    std::uint64_t sequence;
    Event* ready = nullptr;
  };
  // The operation that this call belongs to; or none and the failure, where the group has failed before.
  PendingOperation* arrive(ThreadGroup& group, int rank, const Call& call, CommFailure& failure);
  // Whether it is over, having run a piece of work if there was one. The deadline passing ends it.
  bool test(PendingOperation& operation, int rank, Clock::time_point deadline);
  void wait(PendingOperation& operation, int rank, Clock::time_point deadline);
  // A rank is done with an operation that is over; says how it failed, if it did.
  std::optional<CommFailure> release(PendingOperation& operation, int rank);
  // A rank drops an operation, over or not. What a stream is still doing of it ends with the event, if any.
  std::shared_ptr<Event> abandon(PendingOperation& operation, int rank) noexcept;
  std::string missing(PendingOperation& operation);

  // A rank of the world will call nothing more: whoever waits for it, now or later, fails at once and says `how`.
  void end(int world_rank, const std::string& how);
  // Everything fails.
  void abort(const std::string& reason);

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Sleeper {
    std::atomic<PendingOperation*> awaited;  // null: woken, and out of the list
    std::condition_variable wake;
  };
  struct LastCall {  // the last call of a rank
    const ThreadGroup* group = nullptr;
    CommOp op = CommOp::barrier;
    std::uint64_t sequence = 0;
    bool done = false;
  };

  bool gone(const ThreadGroup& group, int rank) const;
  void fail(ThreadGroup& group, const CommFailure& failure);
  void fail_if_someone_is_gone(ThreadGroup& group);
  bool matches(PendingOperation& operation, std::size_t latest);
  void begin(PendingOperation& operation);
  void end_of(PendingOperation& operation);
  void run_piece(PendingOperation& operation, int rank, Lock& lock);
  PendingOperation* find_work(PendingOperation& first);
  void sleep(PendingOperation& awaited, Lock& lock, std::optional<Clock::time_point> until);
  void wake_some(PendingOperation& operation);
  void wake_all(const PendingOperation& operation);

  std::string title(const PendingOperation& operation) const;
  std::string who_is_missing(const PendingOperation& operation, const std::string& until_when) const;
  void fail_late(PendingOperation& operation);
  std::string last_call(int world_rank) const;

  const double deadline_;
  const int helpers_;
  const bool spins_;
  std::mutex mutex_;
  ThreadGroup world_;
  std::list<PendingOperation*> work_;  // running, with pieces nobody has taken
  std::list<Sleeper*> sleepers_;       // threads with nothing to do
  std::vector<LastCall> last_calls_;   // by rank of the world
  std::vector<std::optional<std::string>> ended_;
  std::optional<CommFailure> aborted_;
};

}  // namespace lockstep::threads
