// What a pipeline did in one step of training, read from a trace, and what its schedule would have done with the same
// work and no delay but the schedule's own.
//
// A step of the schedule runs from the first beginning to the last end of its compute spans; time between them that is
// not computed (a message of tensor parallelism, the host) is not busy. The lowest rank of each stage is the one shown.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "spec/pipeline/clock.h"
#include "telemetry/trace.h"

namespace lockstep {

struct MeasuredTimeline {
  PipelineSchedule schedule;
  std::int64_t step = 0;                  // of training
  std::vector<int> ranks;                 // by stage
  PipelineTimeline line;                  // seconds from the first beginning
  std::vector<std::vector<double>> busy;  // as line.stages: how long of it was computed

  // As those of PipelineTimeline, and what is not busy is idle; these count the gaps within steps.
  double bubble() const;
  double own_bubble(int stage) const;
};

// A schedule that is drawn and timed has at most as many stages, and micro-batches of all chunks: it takes seconds.
inline constexpr int kMostStages = 1024;
inline constexpr int kMostDrawn = 1 << 16;
inline constexpr std::size_t kMostScheduleText = 1 << 22;
// parse_schedule within these bounds, so that no text keeps it busy for long; UserError of the given code.
PipelineSchedule parse_drawn_schedule(std::string_view text, const std::string& where, ExitCode code);

// Of the named step of training, or else of the last one that is complete. `where` names the trace. UserError: usage
// where there is no such step, bad_input_file where the trace has no pipeline or contradicts itself.
MeasuredTimeline measured_timeline(const Trace& trace, std::optional<std::int64_t> step, const std::string& where);
// The same where the schedule is known, however large; the trace's own text is not read.
MeasuredTimeline measured_timeline(PipelineSchedule schedule, const Trace& trace, std::optional<std::int64_t> step,
                                   const std::string& where);

// The same schedule with what the steps took in the median of each chunk and kind, busy time alone; messages take
// `message` seconds.
PipelineTimeline ideal_timeline(const MeasuredTimeline& measured, double message);

}  // namespace lockstep
