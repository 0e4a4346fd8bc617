#include "telemetry/worker_record.h"

#include <nlohmann/json.hpp>
#include <set>

#include "telemetry/event_log.h"

namespace lockstep {

std::optional<WorkerRecord> worker_record_in(const RunRecords& run) {
  WorkerRecord record;
  std::set<int> away;
  for (const RunEvent& event : run.events) {
    if (event.kind == name_of(EventKind::start) && event.is_of_keeper()) away.clear();
    const bool leaves = event.kind == name_of(EventKind::leave);
    if (!leaves && event.kind != name_of(EventKind::join)) continue;
    if (leaves) {
      away.insert(event.rank);
      ++record.lost;
    } else {
      record.joined += static_cast<std::int64_t>(away.erase(event.rank));
    }
    record.time = event.time;
    record.last = event.text;
  }
  if (record.lost == 0) return std::nullopt;
  record.away.assign(away.begin(), away.end());
  return record;
}

nlohmann::ordered_json to_json(const WorkerRecord& workers) {
  using Json = nlohmann::ordered_json;
  return {{"lost", workers.lost},
          {"joined", workers.joined},
          {"away", workers.away},
          {"time", known(workers.time) ? Json(workers.time) : Json(nullptr)},
          {"text", workers.last}};
}

int keeper_in(const RunRecords& run) {
  int keeper = 0;
  for (const RunEvent& event : run.events)
    if (event.kind == name_of(EventKind::start) && event.is_of_keeper()) keeper = event.rank;
  return keeper;
}

}  // namespace lockstep
