// How a run is at the moment, or was at its end: what keeps it going, what its faults have cost, and what every rank
// does. A pure function of what run_reader.h reads: of a run under `lockstep launch` and of one without, under way or
// over.
//
// What the files do not say is nothing. Of a rank the epoch is the one that had begun when it last said what it does.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "telemetry/run_state.h"
#include "telemetry/worker_record.h"

namespace lockstep {

struct LastFault {
  double time = kUnknown;
  std::int64_t step = -1;  // the last that was completed before
  std::string text;
  std::optional<int> culprit = {};
  std::optional<double> cost_seconds = {};  // to the next completed step
};

// Of the run as a whole.
struct RunHealth {
  bool launched = false;      // `lockstep launch` keeps it going, or has
  bool agents = false;        // likewise: they are at work
  std::int64_t epoch = 0;     // of launch; 0: none
  std::int64_t restarts = 0;  // by launch
  std::string leader = {};    // the host's name
  std::string layout = {};    // of the epoch; empty: as it was asked for
  std::vector<LaunchedHost> hosts = {};
  std::optional<std::int64_t> copy_every = {};
  std::optional<LastFault> fault = {};
  std::optional<Goodput> goodput = {};
  std::vector<int> slow = {};                // ranks that are slow (slow_ranks.h)
  std::optional<WorkerRecord> workers = {};  // of an asynchronous run that has lost some
};
RunHealth health_of(const RunRecords& run);

struct StatusOfRank {
  int rank = 0;
  std::string host = {};
  std::int64_t pid = 0;
  std::int64_t epoch = 0;  // of launch; 0: none
  std::int64_t step = 0;
  DoingKind doing = DoingKind::between_steps;
  std::string what = {};  // "in forward block.3 of step 17" (stalls.h), "ended"
  double seconds = 0;     // that it had been there when it said so
  double heard = 0;       // seconds since then
  ProcessState process = ProcessState::unknown;
  bool slow = false;
};

struct StatusOfRun {
  std::string folder = {};
  double time = 0;  // seconds since 1970, when it was read
  RunState state = RunState::stopped;
  std::int64_t step = 0;
  std::optional<std::int64_t> steps = {};  // planned
  std::optional<double> loss = {};         // of the last step
  RunHealth health = {};
  std::vector<StatusOfRank> ranks = {};
  std::vector<std::string> damaged = {};  // files, or lines of them, that could not be read
};
StatusOfRun status_of(const RunRecords& run);

// Every field; null where it is not known.
nlohmann::ordered_json to_json(const RunHealth& health);
nlohmann::ordered_json to_json(const StatusOfRun& status);

}  // namespace lockstep
