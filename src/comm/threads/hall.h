// Where ranks that are threads of one process meet.
//
// A Meeting is one operation of one group. Ranks arrive with their calls; the last to come makes the plan of what is to
// be done, and the pieces of that plan are run by whichever threads are waiting for anything at all: so a rank that has
// started an operation can compute on while others do the work, and many ranks share few cores without spinning. (Where
// each rank can have a core, one that has nothing to do looks about for some 40 us before it sleeps: waking it would
// take as long.) The last to come to a small operation runs it on the spot. Ranks take pieces from both ends, each from
// its own, so that of tensors that are summed again and again a core has the same part in its cache.
//
// Meetings of a channel (the collectives of a group, or the messages from one rank to another) run one after the other.
// All that the ranks share is behind one mutex; pieces run outside of it. Failure is kept with the group: everything
// that had not begun fails, with the words that wait() will throw, and what runs is run to its end, since pieces wait
// for nothing. A meeting lives until every rank that came to it has let it go.
//
// Where ranks compute in streams, a call comes with an event of its rank's stream, and a meeting's one piece of work is
// to give its plan to the group's carrier (threads/carrier.h): it is over when that has been done, and `carried` says
// when the device has done it too. The last to come does so on the spot.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "comm/error.h"
#include "comm/threads/carrier.h"
#include "comm/threads/plan.h"

namespace lockstep::threads {

using Clock = std::chrono::steady_clock;

struct Failure {
  std::string what;
  bool secondary = false;  // another rank knows the cause (comm/error.h)
};

struct Group;
struct Channel;

struct Meeting {
  enum class State : std::uint8_t { gathering, running, done, failed };

  Group& group;
  Channel& channel;
  std::uint64_t sequence;
  std::vector<int> ranks;                     // who must come, as ranks of the group
  std::vector<std::optional<Message>> calls;  // of each of them
  int arrived = 0;
  int holders = 0;  // ranks that have come and not let go
  State state = State::gathering;
  Plan plan = {};
  std::int64_t first = 0, last = 0;  // pieces that threads have taken, from the first on and from the last
  std::int64_t finished = 0;
  Failure failure = {};
  std::vector<Event*> ready = {};       // by call, where ranks compute in streams: where each rank's stream was
  std::shared_ptr<Event> carried = {};  // there: the device has done it

  bool in_stream() const { return !ready.empty(); }
  bool complete() const { return arrived == static_cast<int>(ranks.size()); }
  bool over() const { return state == State::done || state == State::failed; }
  std::int64_t unclaimed() const { return plan.pieces() - first - last; }
  bool has_work() const { return state == State::running && unclaimed() > 0; }
};

struct Channel {
  std::uint64_t next = 1;  // the meeting whose turn it is
  std::map<std::uint64_t, std::unique_ptr<Meeting>> meetings = {};
};

struct Group {
  std::string name;
  std::vector<int> members;  // ranks of the world
  Group* parent = nullptr;
  std::vector<char> joined = {}, left = {};  // by rank: has, or had, a communicator; has it no more
  std::optional<Failure> failure = {};
  std::unique_ptr<Carrier> carrier = {};  // where ranks compute in streams
  Channel collectives = {};
  std::map<std::pair<int, int>, Channel> pairs = {};                 // from, to
  std::vector<int> splits = {};                                      // by rank: how often it has divided this group
  std::map<std::pair<int, int>, std::unique_ptr<Group>> parts = {};  // which division, color
};

// The group and all that were divided from it; all meetings of a group.
void each_group(Group& group, const std::function<void(Group&)>& each);
void each_meeting(Group& group, const std::function<void(Meeting&)>& each);

class Hall {
 public:
  Hall(int ranks, double deadline_seconds, int helpers);

  Group& world() { return world_; }
  double deadline() const { return deadline_; }

  // A rank's communicator of a group comes and goes.
  void join(Group& group, int rank);
  void leave(Group& group, int rank) noexcept;
  // The group of a division in which this rank has that color. Its members must be those that the others gave.
  Group& divide(Group& group, int rank, int color, std::vector<int> members, const std::string& name);

  // The ranks of this group compute in streams of that device from now on; every rank says so before it calls.
  void carry_on(Group& group, Device device);

  // What a rank brings to a meeting. The event is of a rank that computes in a stream, and lives until it lets go.
  struct Call {
    const Message& message;
    std::uint64_t sequence;
    Event* ready = nullptr;
  };
  // The meeting that this call belongs to; or none and the failure, where the group has failed before.
  Meeting* arrive(Group& group, int rank, const Call& call, Failure& failure);
  // Whether it is over, having run a piece of work if there was one. The deadline passing ends it.
  bool ask(Meeting& meeting, int rank, Clock::time_point deadline);
  void wait(Meeting& meeting, int rank, Clock::time_point deadline);
  // A rank lets go of a meeting that is over; says how it failed, if it did.
  std::optional<Failure> let_go(Meeting& meeting, int rank);
  // A rank goes away from a meeting, over or not. What a stream is still doing of it ends with the event, if any.
  std::shared_ptr<Event> give_up(Meeting& meeting, int rank) noexcept;
  std::string missing(Meeting& meeting);

  // A rank of the world comes no more: whoever waits for it, now or later, fails at once with these words.
  void end(int world_rank, const std::string& how);
  // Everything fails.
  void abort(const std::string& reason);

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Sleeper {
    std::atomic<Meeting*> awaited;  // null: woken, and out of the list
    std::condition_variable wake;
  };
  struct Seen {  // the last call of a rank
    const Group* group = nullptr;
    CommOp op = CommOp::barrier;
    std::uint64_t sequence = 0;
    bool done = false;
  };

  bool gone(const Group& group, int rank) const;
  void fail(Group& group, const Failure& failure);
  void fail_if_someone_is_gone(Group& group);
  bool fits(Meeting& meeting, std::size_t newcomer);
  void begin(Meeting& meeting);
  void end_of(Meeting& meeting);
  void run_piece(Meeting& meeting, int rank, Lock& lock);
  Meeting* find_work(Meeting& first);
  void sleep(Meeting& awaited, Lock& lock, std::optional<Clock::time_point> until);
  void wake_some(Meeting& meeting);
  void wake_all(const Meeting& meeting);

  std::string title(const Meeting& meeting) const;
  std::string who_is_missing(const Meeting& meeting, const std::string& until_when) const;
  void fail_late(Meeting& meeting);
  std::string whereabouts(const Group& group) const;
  std::string last_call(int world_rank) const;

  const double deadline_;
  const int helpers_;
  const bool spins_;
  std::mutex mutex_;
  Group world_;
  std::list<Meeting*> work_;      // running, with pieces nobody has taken
  std::list<Sleeper*> sleepers_;  // threads with nothing to do
  std::vector<Seen> seen_;        // by rank of the world
  std::vector<std::optional<std::string>> ended_;
  std::optional<Failure> aborted_;
};

}  // namespace lockstep::threads
