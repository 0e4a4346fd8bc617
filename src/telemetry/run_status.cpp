#include "telemetry/run_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "telemetry/event_log.h"
#include "telemetry/report.h"
#include "telemetry/stalls.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json status_value(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json status_number(double value) { return known(value) ? Json(value) : Json(nullptr); }
Json status_words(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

bool is_of(const RunEvent& event, EventKind kind) { return event.kind == name_of(kind); }

// What an agent has found counts for more than what a rank says: it knows what follows.
std::optional<LastFault> last_fault_in(const RunRecords& run) {
  std::optional<LastFault> of_agent, of_rank;
  for (const RunEvent& event : run.events) {
    if (is_of(event, EventKind::restart) && of_agent && known(event.seconds)) of_agent->cost_seconds = event.seconds;
    if (!is_of(event, EventKind::fault)) continue;
    LastFault fault{.time = event.time, .step = event.step, .text = event.text};
    if (event.culprit >= 0) fault.culprit = event.culprit;
    (event.rank < 0 ? of_agent : of_rank) = std::move(fault);
  }
  if (of_agent || !run.launch || !run.launch->fault) return of_agent ? of_agent : of_rank;
  const LaunchFault& fault = *run.launch->fault;
  return LastFault{.time = fault.time, .step = fault.step, .text = fault.text, .cost_seconds = fault.cost_seconds};
}

// Of the try that trains, or was the last to.
std::vector<int> slow_ranks_in(const RunRecords& run) {
  std::set<int> slow;
  for (const RunEvent& event : run.events) {
    if (is_of(event, EventKind::start) && event.is_of_keeper()) slow.clear();
    if (is_of(event, EventKind::slow)) slow.insert(event.rank);
    if (is_of(event, EventKind::slow_end)) slow.erase(event.rank);
  }
  return {slow.begin(), slow.end()};
}

struct BegunEpoch {
  double time;
  std::int64_t number;
};
std::vector<BegunEpoch> epochs_in(const RunRecords& run) {
  std::vector<BegunEpoch> all;
  for (const RunEvent& event : run.events)
    if (is_of(event, EventKind::decision) && event.epoch > 0 && known(event.time))
      all.push_back({event.time, event.epoch});
  return all;
}

std::int64_t epoch_of(const RankNow& now, const std::vector<BegunEpoch>& epochs, const RunHealth& health) {
  if (!health.launched) return 0;
  if (epochs.empty()) return health.epoch;
  std::int64_t epoch = epochs.front().number - 1;
  for (const BegunEpoch& begun : epochs)
    if (begun.time <= now.time) epoch = begun.number;
  return epoch;
}

std::string_view name_of_process(ProcessState process) {
  switch (process) {
    case ProcessState::running:
      return "running";
    case ProcessState::stopped:
      return "stopped";
    case ProcessState::gone:
      return "gone";
    case ProcessState::unknown:
      break;
  }
  return "unknown";
}

}  // namespace

RunHealth health_of(const RunRecords& run) {
  RunHealth health{.agents = launch_at_work(run) != nullptr,
                   .fault = last_fault_in(run),
                   .goodput = run.goodput.value(run.read_at, launch_at_work(run) || run.running.value_or(false)),
                   .slow = slow_ranks_in(run),
                   .workers = worker_record_in(run)};
  if (!run.launch) return health;
  const LaunchState& launch = *run.launch;
  health.launched = true;
  health.epoch = launch.epoch;
  health.restarts = launch.restarts;
  health.leader = launch.leader;
  health.layout = launch.layout;
  health.hosts = launch.hosts;
  health.copy_every = launch.copy_every;
  return health;
}

StatusOfRun status_of(const RunRecords& run) {
  StatusOfRun status{.folder = run.folder.string(),
                     .time = run.read_at,
                     .state = state_of(run),
                     .step = std::max<std::int64_t>(0, run.last.step),
                     .steps = run.plan.steps,
                     .health = health_of(run)};
  if (run.last.step >= 0 && known(run.last.loss)) status.loss = run.last.loss;
  const std::vector<BegunEpoch> epochs = epochs_in(run);
  const std::vector<int>& slow = status.health.slow;
  for (const auto& [number, rank] : run.now)
    status.ranks.push_back({.rank = number,
                            .host = rank.now.host,
                            .pid = rank.now.pid,
                            .epoch = epoch_of(rank.now, epochs, status.health),
                            .step = rank.now.step,
                            .doing = rank.now.doing,
                            .what = rank.now.doing == DoingKind::ended ? "ended" : place_text(rank.now),
                            .seconds = rank.now.seconds,
                            .heard = std::max(0.0, run.read_at - rank.now.time),
                            .process = rank.process,
                            .slow = std::ranges::binary_search(slow, number)});
  for (const auto& [file, lines] : run.bad_by_file)
    status.damaged.push_back(file.ends_with(".jsonl") ? fmt::format("{}: {} line{}", file, lines, lines == 1 ? "" : "s")
                                                      : file);
  return status;
}

Json to_json(const RunHealth& health) {
  Json hosts = Json::array();
  for (const LaunchedHost& host : health.hosts)
    hosts.push_back({{"name", host.name},
                     {"address", status_words(host.address)},
                     {"pid", host.pid},
                     {"role", name_of(host.role)},
                     {"heard", host.heard},
                     {"ranks", host.ranks}});
  Json fault = nullptr;
  if (health.fault)
    fault = {{"time", status_number(health.fault->time)},
             {"step", health.fault->step},
             {"text", health.fault->text},
             {"culprit", status_value(health.fault->culprit)},
             {"cost_seconds", status_value(health.fault->cost_seconds)}};
  return {{"launched", health.launched},
          {"agents", health.agents},
          {"epoch", health.launched ? Json(health.epoch) : Json(nullptr)},
          {"restarts", health.launched ? Json(health.restarts) : Json(nullptr)},
          {"leader", status_words(health.leader)},
          {"layout", status_words(health.layout)},
          {"copy_every", status_value(health.copy_every)},
          {"hosts", std::move(hosts)},
          {"fault", std::move(fault)},
          {"goodput", health.goodput ? to_json(*health.goodput) : Json(nullptr)},
          {"slow_ranks", health.slow},
          {"workers", health.workers ? to_json(*health.workers) : Json(nullptr)}};
}

Json to_json(const StatusOfRun& status) {
  Json ranks = Json::array();
  for (const StatusOfRank& rank : status.ranks)
    ranks.push_back({{"rank", rank.rank},
                     {"host", status_words(rank.host)},
                     {"pid", rank.pid},
                     {"epoch", rank.epoch > 0 ? Json(rank.epoch) : Json(nullptr)},
                     {"step", rank.step},
                     {"doing", name_of(rank.doing)},
                     {"what", rank.what},
                     {"seconds", rank.seconds},
                     {"heard", rank.heard},
                     {"process", name_of_process(rank.process)},
                     {"slow", rank.slow}});
  return {{"folder", status.folder},
          {"time", status.time},
          {"state", name_of(status.state)},
          {"step", status.step},
          {"steps", status_value(status.steps)},
          {"loss", status_value(status.loss)},
          {"launch", to_json(status.health)},
          {"ranks", std::move(ranks)},
          {"damaged", status.damaged}};
}

}  // namespace lockstep
