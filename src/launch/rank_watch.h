// Ranks that hang, by what all of them write of themselves into the run folder (telemetry/rank_now.h).
//
// Each host watches its own processes (host_ranks.h). This is the leader's look at all of them, once per second: a rank
// that makes no progress while its process is alive (telemetry/stalls.h), and, of ranks that mpirun has started and no
// agent is the parent of, one whose process is stopped. Only what processes of this epoch have written counts: those
// that were not there when it began, or have written since; the calendar alone could have jumped.
//
// One thread.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
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
  std::optional<RankEnd> look();  // who hangs, and how; at most once per second
  // Whether that rank, or one of any where none is given, has not said that it has come to its end: a process that ends
  // with 0 all the same was ended by something else.
  bool is_unfinished(std::optional<int> rank) const;
  std::vector<pid_t> processes_here() const;  // of this epoch's ranks on this host that are not gone

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<RankNow> read(int rank) const;
  std::vector<RankNow> read() const;

  std::filesystem::path folder_;
  StallRules rules_;
  int ranks_ = 0;
  double began_ = 0;                                            // seconds since 1970
  std::map<int, std::pair<std::string, std::int64_t>> before_;  // host and process that a rank was until then
  Clock::time_point looked_{};
  struct Stopped {
    Clock::time_point since;
    double told;  // when the rank last wrote its file
  };
  std::map<int, Stopped> stopped_;  // by rank: its process is
};

}  // namespace lockstep
