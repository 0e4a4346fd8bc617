// Ranks that hang, by what all of them write of themselves into the run folder (telemetry/rank_now.h).
//
// Each host watches its own processes (host_ranks.h). This is the leader's look at all of them, once per second: a rank
// that makes no progress while its process is alive (telemetry/stalls.h), and, of ranks that mpirun has started and no
// agent is the parent of, one whose process is stopped. Only what processes of this epoch have written counts: those
// that were not there when it began, or have written since; the calendar alone could have jumped.
//
// Of a worker that is put down while the others go on (leader.h) nothing counts until it comes back, and then only what
// its new process writes: the file of one that hung says so for ever.
//
// One thread.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launch/epoch.h"
#include "telemetry/rank_now.h"
#include "telemetry/stalls.h"

namespace lockstep {

class RankWatch {
 public:
  RankWatch(std::filesystem::path folder, StallRules rules) : folder_(std::move(folder)), rules_(rules) {}

  void epoch_began(int ranks);
  void ranks_went(const std::set<int>& ranks);  // they are being ended, while the others go on
  void ranks_came(const std::set<int>& ranks);  // they are about to be started again, and nothing of them runs
  std::optional<RankEnd> look();                // who hangs, and how; at most once per second
  // Whether that rank, or one of any where none is given, has not said that it has come to its end: a process that ends
  // with 0 all the same was ended by something else.
  bool is_unfinished(std::optional<int> rank) const;
  std::vector<pid_t> processes_here() const;  // of this epoch's ranks on this host that are not gone

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<RankNow> read(int rank) const;
  std::vector<RankNow> read() const;
  void begins(int rank, double time);

  std::filesystem::path folder_;
  StallRules rules_;
  int ranks_ = 0;
  struct Before {
    std::string host;
    std::int64_t pid;
    double time;   // when that process wrote its file last
    double began;  // what comes after it; both are seconds since 1970
  };
  std::map<int, Before> before_;  // by rank: what it was until it began
  std::map<int, bool> went_;      // ranks that have gone in this epoch, and whether they are still away
  Clock::time_point looked_{};
  struct Stopped {
    Clock::time_point since;
    double told;  // when the rank last wrote its file
  };
  std::map<int, Stopped> stopped_;  // by rank: its process is
};

}  // namespace lockstep
