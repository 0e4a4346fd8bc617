// What a run's events say of the workers of an asynchronous run that died and joined (train/async_steps.h), and which
// rank keeps the run's records.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "telemetry/run_reader.h"

namespace lockstep {

struct WorkerRecord {
  std::int64_t lost = 0, joined = 0;  // times, in all tries; joined: not those that a try begins with
  std::vector<int> away = {};         // of the newest try: first ranks of workers that are lost, and not there again
  double time = kUnknown;             // of the last of them
  std::string last = {};              // in words
};
// Nothing: none was lost.
std::optional<WorkerRecord> worker_record_in(const RunRecords& run);
nlohmann::ordered_json to_json(const WorkerRecord& workers);

// The rank whose numbers metrics.jsonl has: 0, or the first server where workers may die.
int keeper_in(const RunRecords& run);

}  // namespace lockstep
