// The agent that leads: it begins epochs, hears how their ranks end, and decides what follows.
//
// A state machine without sockets, processes or files. Input: agents that come and go, reports of ranks, the time.
// Output: through `hands`, which must not call back. Of an epoch all ranks are started; when one of them fails, or its
// host is lost, all others are ended, and the next epoch begins when every agent has told that nothing of the last one
// runs any more (a lost agent's ranks have ended too by then: it kills them within kLease of not being heard, and is
// taken for lost later than that). What follows is decided by restart_policy.h (whether) and epoch_planner.h (where).
//
// Who is to blame: a rank that was ended by a signal, or hung, or whom a fault in events.jsonl names; or the host that
// was lost. Other ranks that fail with exit code 5 are most often victims: nobody is blamed where only they are known.
//
// Workers that others do not need (epoch.h): one that fails is started again by itself, in its epoch, while all others
// go on; how often is bounded as restarts are, for each of them (restart_policy.h), and then it stays away. When no
// worker is left whole, the fault is the run's. One whose host is lost comes back with the host.
//
// A quorum of agents is needed to begin an epoch: more than half of those that were there when the last one began, or
// exactly half and the folder's word (agent_folder.h: an epoch's number is taken there by one agent alone). So of the
// parts of a split network at most one continues.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/epoch_planner.h"
#include "launch/restart_policy.h"
#include "telemetry/event_log.h"

namespace lockstep {

struct AgentFacts {
  std::string name = {};     // of its host
  std::string address = {};  // where its ranks are reached
  int slots = 1;
  std::int64_t process = 0;  // the agent's
};

class Leader {
 public:
  using Clock = std::chrono::steady_clock;

  struct Hands {
    std::function<void(int agent, const EpochOrder& order)> start;
    std::function<void(int agent)> ask_to_end;
    std::function<void(int agent)> kill;
    std::function<void(int agent, const std::set<int>& ranks)> kill_ranks = {};  // of the epoch; where some are workers
    // Those of a worker that is put down, or about to be started again, while the others go on.
    std::function<void(const std::set<int>& ranks)> ranks_went = {};
    std::function<void(const std::set<int>& ranks)> ranks_came = {};
    // In the run folder; false: another agent has it. EnvironmentError where the folder takes nothing: tried again.
    std::function<bool(std::uint32_t epoch)> take_epoch;
    std::function<bool(std::uint32_t epoch)> epoch_is_taken =
        {};                                           // by whichever agent; asked while the folder is not free
    std::function<bool()> folder_is_free;             // nobody trains there
    std::function<std::int64_t()> last_step;          // that was completed
    std::function<std::optional<int>()> blamed_rank;  // whom the events of this epoch name
    // Whether a rank, or any, has not come to the end of its run, by what it has said of itself.
    std::function<bool(std::optional<int> rank)> is_unfinished = {};
    std::function<void(const std::string& message)> tell;
    // A fault and what follows it; without a fault: the run grows.
    struct Decided {
      std::string fault = {};
      std::optional<int> culprit = {};  // of the fault: a rank
      Decision decision = Decision::end;
      std::int64_t step = 0;
      std::string text = {};
      std::uint32_t epoch = 0;  // that follows; 0: none is known yet
      int ranks = 0;            // of that
    };
    std::function<void(const Decided& decided)> decided;
  };
  struct Options {
    EpochPlanner::Options plan = {};
    int agents = 1;                       // that are expected at the start
    std::vector<std::string> names = {};  // of their hosts, for messages
    int most_restarts = 10;
    bool resumes = false;           // the first epoch too
    std::uint32_t last_epoch = 0;   // that an earlier launch has begun
    double start_seconds = 60;      // for all agents to come
    double wait_seconds = 600;      // for lost ones to come back
    double grace_seconds = 2;       // for ranks whose peer has failed to end by themselves
    double grow_after_seconds = 5;  // that a host must have been back
    double folder_seconds = 60;     // for the folder to be free, and to take the next epoch
    std::int64_t steps = 0;         // of the whole run
    int stopped_code = 0;           // of a run that ends well before its last step: it was asked to
    // Of such a layout; none: every rank is needed.
    std::function<LaunchWorkers(const LaunchLayout& layout)> workers = {};
  };
  // After this many seconds without an answer an agent that does not lead kills its ranks; after kLost it is lost.
  static constexpr double kLease = 4, kLost = 6;

  Leader(Options options, Hands hands, Clock::time_point now);
  // That continues a run which another agent has led: `last` is the epoch that was, `agents` those that were there.
  void inherit(const Epoch& last, const std::set<int>& agents);

  void joined(int agent, const AgentFacts& facts, Clock::time_point now);
  void lost(int agent, const std::string& how, Clock::time_point now);
  // A rank of the epoch has ended, or hangs. Of an older epoch: ignored.
  void ended(int agent, std::uint32_t epoch, const RankEnd& end, Clock::time_point now);
  void stalled(const RankEnd& stall, Clock::time_point now);  // found by what all ranks say they are doing
  void stop() { stopping_ = true; }                           // the user has asked for the end
  void tick(Clock::time_point now);

  bool over() const { return over_; }
  int code() const { return code_; }
  const std::string& reason() const { return reason_; }  // of a run that has failed
  bool deposed() const { return deposed_; }              // over, since another agent leads this run
  bool lacks_quorum() const {
    return !over_ && (phase_ == Phase::gathering || phase_ == Phase::waiting) && !has_quorum();
  }

  enum class Phase : std::uint8_t { gathering, running, ending, beginning, waiting };
  Phase phase() const { return phase_; }
  const Epoch& epoch() const { return epoch_; }  // the last that was begun
  const Epoch& coming() const { return next_ ? *next_ : epoch_; }
  const std::map<int, AgentFacts>& agents() const { return agents_; }
  const std::map<int, AgentFacts>& lost_agents() const { return lost_; }
  int restarts() const { return policy_.restarts(); }

 private:
  void gather(Clock::time_point now);
  void run(Clock::time_point now);
  void finish_ending(Clock::time_point now);
  void begin(Clock::time_point now);
  void await_hosts(Clock::time_point now);
  void end_ranks(Clock::time_point now);
  void fail(const std::string& fault, std::optional<int> rank, Clock::time_point now);
  void conclude(Clock::time_point now);
  void follow(const Epoch& next, Clock::time_point now);
  void finish(int code, const std::string& reason);
  bool has_quorum() const;
  bool all_ended() const;
  LaunchWorkers workers() const;
  std::set<int> ranks_of(int worker) const;
  bool is_whole(int worker) const;
  bool servers_run() const;
  bool go_on_without(const RankEnd& end);
  void put_down(int worker, int rank, const std::string& fault, bool again);
  bool go_on_without_host(int agent, const std::string& name, const std::string& how);
  void start_workers_again();
  void end_workers(Clock::time_point now);
  std::vector<std::pair<int, EpochOrder>> orders(const std::set<int>& ranks) const;
  void find_early_end();                 // among ranks that have ended with 0
  std::string place_of(int rank) const;  // "rank 2 on host b"
  std::string name_of_place(const RankSlot& slot) const;
  std::string who_is_missing() const;
  std::string waited_in_vain() const;

  Options options_;
  Hands hands_;
  EpochPlanner planner_;
  RestartPolicy policy_;
  std::map<int, AgentFacts> agents_, lost_;
  std::map<int, Clock::time_point> since_;  // when each has come
  std::set<int> last_set_;                  // of agents, when the last epoch began

  Phase phase_ = Phase::gathering;
  Clock::time_point phase_began_;
  Epoch epoch_;                  // the last that was begun
  std::optional<Epoch> next_;    // that is to begin
  std::map<int, RankEnd> ends_;  // of the epoch's processes that have ended, by rank
  std::map<int, bool> down_;     // workers that are, and whether they are started again
  std::map<int, RestartPolicy> worker_policies_;
  std::optional<Clock::time_point> servers_ended_;
  std::set<int> running_;  // processes of the epoch, by rank, that have not
  std::set<RankSlot> blamed_;
  std::string fault_;           // empty: the epoch is well
  std::optional<int> culprit_;  // a rank that was seen to have failed
  int fault_code_ = 0;
  bool killed_ = false;  // the rest of it has been
  bool asked_ = false;   // ranks have been asked to end
  bool grows_ = false;
  std::int64_t furthest_ = 0;  // step, at any fault so far

  bool stopping_ = false, over_ = false, deposed_ = false;
  bool told_of_folder_ = false;  // that takes no epoch
  int code_ = 0;
  std::string reason_;
};

}  // namespace lockstep
