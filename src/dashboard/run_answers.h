// What a run has written, as the page asks for it: JSON of bounded size, whatever the run's is.
//
// A number that is not known is null. Curves have at most kMostCurvePoints points each (downsample.h), tables over
// ranks at most kMostRankRows rows: of more ranks each row is of a group of neighbours, and shows the one that is
// busiest (times) or holds most (memory).
#pragma once
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "dashboard/run_summary.h"

namespace lockstep {

inline constexpr std::size_t kMostRankRows = 1024, kMostShownEvents = 300, kMostHistoryPoints = 240;

struct StepRange {
  std::int64_t from = 0, to = std::numeric_limits<std::int64_t>::max();
};

nlohmann::json summary_json(const RunSummary& summary);

// {curve: {x: [step], t: [seconds since the first step ended], y: [value]}} for loss, eval_loss, lr, grad_norm,
// tokens_per_s, mfu and step_ms, those of which there is something.
nlohmann::json curves_json(const RunRecords& run, const StepRange& range);

// {uses: [name], ranks: [{rank, of, steps, ms, uses: [ms]}], history: {x: [step], ms: [[ms by use]]}, slowest}: means
// over the last records of each rank, and means over ranks in the course of the run.
nlohmann::json times_json(const RunRecords& run);

// {tags: [name], ranks: [{rank, of, now: [bytes], peak: [bytes], planned: [bytes], planned_peak}]}, by tag.
nlohmann::json memory_json(const RunRecords& run);

// The newest first.
nlohmann::json events_json(const RunRecords& run);

// {findings: [{name, severity, summary, evidence, remedies}], healthy}: what the doctor says, the most urgent first, or
// one line about a healthy run.
nlohmann::json findings_json(const RunRecords& run);

}  // namespace lockstep
