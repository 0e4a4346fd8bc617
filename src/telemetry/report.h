// What a run has come to, from its records: where the time went, how efficient it was, what was learned, what memory it
// took and how stable it ran.
//
// A pure function of what run_reader.h reads; what the records do not say is nothing here, never a guess.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "telemetry/run_reader.h"
#include "telemetry/worker_record.h"

namespace lockstep {

// Of all steps. Shares are of the time of all ranks, saves and evaluations included.
struct ReportedTime {
  double wall_seconds = 0;                              // from the first step's line to the last one's
  std::optional<double> step_seconds, slowest_seconds;  // the median step's, and the slowest of twenty
  bool split = false;                                   // uses are known
  std::array<double, kTimeUses> share{};                // by TimeUse
  std::array<int, kTimeUses> most_rank{};               // the rank that had most of it in the newest step
  std::string advice;                                   // below "good": what would raise the MFU; empty: nothing
};

struct ReportedEfficiency {
  std::optional<double> tokens_per_s, tokens_per_s_rank;  // the median step's
  std::optional<double> mfu, mfu_6n;                      // the run's (mfu_band.h); with attention, and by 6N
  std::string band;
  std::string baseline;                    // its folder; empty: none was given
  std::optional<double> baseline_rank;     // tokens/s of one of its ranks
  std::optional<double> against_baseline;  // one rank's tokens/s over the baseline's
  std::string why_unknown;                 // why there is none
};

// Of a run with pp > 1 whose bubble is known.
struct ReportedPipeline {
  double ideal_bubble = 0, bubble = 0;  // shares of the step
  double over_ideal = 0;                // throughput: (1 - bubble) / (1 - ideal)
};

struct ReportedQuality {
  std::optional<double> first_loss, last_loss, best_loss;
  std::optional<double> eval_loss, perplexity, accuracy;  // of the last evaluation
  std::int64_t eval_step = -1;
};

// The sum of the peaks of all tags; by tag where both are known.
struct ReportedMemory {
  int rank = 0;
  std::optional<std::int64_t> planned, measured;
  BytesOfTags planned_tags, measured_tags;
};

struct ReportedStability {
  bool events = false;  // recorded
  std::int64_t faults = 0, stalls = 0, restarts = 0;
  std::vector<std::string> fault_texts;  // the last few
  std::int64_t skipped = 0;              // steps that updated nothing
  std::int64_t overflows = 0;            // of those: with a loss scale that was too large
  std::optional<double> imbalance;       // the busiest rank's time over the mean of ranks, less 1; of recent steps
  int busiest_rank = -1;
  std::int64_t spikes = 0;                   // losses more than kSpike deviations above the usual
  std::optional<WorkerRecord> workers = {};  // of an asynchronous run that has lost some
};
inline constexpr double kSpike = 6;

struct Report {
  std::string folder, layout, device, precision;
  std::optional<std::int64_t> ranks, parameters, planned_steps;
  std::int64_t last_step = 0;
  std::optional<bool> running;
  ReportedTime time;
  ReportedEfficiency efficiency;
  std::optional<ReportedPipeline> pipeline;
  std::optional<PredictionScore> prediction;  // of a run with run.machine
  ReportedQuality quality;
  std::vector<ReportedMemory> memory;  // by rank
  ReportedStability stability;
  std::optional<Goodput> goodput;
};

Report make_report(const RunRecords& run, const RunRecords* baseline = nullptr);

// All steps with a time, as predictions are compared with them.
std::vector<MeasuredStep> measured_steps(const RunRecords& run);

// Every field; null where it is not known.
nlohmann::ordered_json to_json(const Goodput& goodput);
nlohmann::ordered_json to_json(const Report& report);

}  // namespace lockstep
