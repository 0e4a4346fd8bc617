// When each stage of a pipeline does what, if every step takes a given time: compares schedules without running them.
//
// A stage begins a step as soon as its step before is done and what it needs has arrived. A message takes its time
// beside the steps, and any number of messages may be under way.
#pragma once
#include <functional>
#include <vector>

#include "spec/pipeline/schedule.h"

namespace lockstep {

// Of one chunk and micro-batch. The message is that between two stages; chunks of one stage hand on for nothing.
struct ChunkTimes {
  double forward = 1, input = 1, weight = 1, message = 0;
};

struct ChunkSpan {
  ChunkAction action;
  double begin, end;
};

struct PipelineTimeline {
  std::vector<std::vector<ChunkSpan>> stages;  // in order
  double makespan() const;                     // from the first beginning to the last end
  // Idle time over all time: of all stages from the first beginning to the last end, or of each from its own first
  // step to its own last.
  double bubble() const;
  double own_bubble(int stage) const;
};

// `times` says how long the steps of each chunk take. Of a schedule without a fault.
PipelineTimeline timed(const PipelineSchedule& schedule, const std::function<ChunkTimes(int chunk)>& times);

}  // namespace lockstep
