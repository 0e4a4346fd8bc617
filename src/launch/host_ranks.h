// The processes of an epoch on this host: started, watched, ended.
//
// A death is noticed at once, by the system. A process that is stopped (SIGSTOP) for kStopped seconds, or that was
// heard and has said nothing for kSilent, is reported as hung, once; whoever decides ends it. Time in which this
// process itself did not run does not count against the ranks.
//
// One thread.
#pragma once
#include <poll.h>

#include <functional>
#include <memory>
#include <set>

#include "launch/epoch.h"
#include "launch/rank_process.h"

namespace lockstep {

class HostRanks {
 public:
  static constexpr double kStopped = 5, kSilent = 5;

  // What the processes of an order are started as; EnvironmentError where one cannot be, after those before it have
  // been killed.
  // An order that joins leaves alone those of its epoch that run here.
  using Command = std::function<ProcessCommand(const EpochOrder& order, const EpochOrder::Place& place)>;
  void start(const EpochOrder& order, const Command& command);

  std::uint32_t epoch() const { return epoch_; }
  bool running() const;
  // Of each rank that has ended or hangs since the last look.
  std::vector<RankEnd> look();
  void ask_to_end();
  void kill() { kill({}); }
  void kill(const std::set<int>& ranks);                    // none: all
  void add_descriptors(std::vector<pollfd>& polled) const;  // readable when one has ended

 private:
  using Clock = RankProcess::Clock;
  struct Running {
    int rank;
    std::unique_ptr<RankProcess> process;
    Clock::time_point ran = Clock::now();  // when it was last seen not to be stopped
    bool told_end = false, told_hang = false, killed = false;
  };
  std::string find_hang(Running& running, double excused);

  std::uint32_t epoch_ = 0;
  std::vector<Running> processes_;
  Clock::time_point looked_ = Clock::now();
  double excused_ = 0;  // seconds in which nobody looked
};

}  // namespace lockstep
