// A traced step as the page asks for it: JSON of bounded size.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>

#include "telemetry/plan_file.h"
#include "telemetry/trace.h"

namespace lockstep {

inline constexpr std::size_t kMostShownSpans = 40'000, kMostTimelineRows = 64;

struct TimelineWindow {
  std::int64_t step = -1;    // -1: the last one that was traced
  double from = 0, to = -1;  // seconds since the step began; to < from: until its end
  int first_rank = 0, ranks = 32;
};

// {steps: [traced], step, seconds, ranks, first, kinds: [name], names: [name],
//  rows: [{rank, stage, spans: [[begin, end, kind, name, micro]]}]}: times in microseconds since the step began, kind
//  and
// name by their places in the lists. Neighbours of one kind that are too short to be seen at this zoom become one span
// with the name of the longest and the micro-batch -2, so that at most kMostShownSpans come.
nlohmann::json timeline_json(const Trace& trace, const TimelineWindow& window);

// The pipeline of the last traced step beside the ideal one: {step, rows: [{rank, stage}], measured: [[row, name,
// begin, end, backward]], ideal: …, measured_bubble, ideal_bubble}; times as shares of the step. Null without a
// pipeline.
nlohmann::json schedule_json(const Trace& trace, const RunPlan& plan);

}  // namespace lockstep
