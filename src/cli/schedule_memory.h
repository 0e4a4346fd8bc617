// What `lockstep plan` says of a pipeline's activations: the bytes beside the counts of micro-batches in flight.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "spec/pipeline/schedule.h"

namespace lockstep {

// A run to ask about: a model's preset in bf16, split evenly, one sample of `seq` tokens per micro-batch, everything
// kept.
struct PlannedRun {
  std::string model = "llama3-8b";
  int seq = 4096;
  int tp = 1;
};

// Of the fullest stage. Where the model has fewer layers than the pipeline has parts, it is given as many layers as
// parts. Nothing of pipelines so large that a plan would take long. UserError (usage) where there is no such model, or
// it cannot be split so.
std::optional<std::int64_t> planned_activations(const PlannedRun& run, ScheduleKind kind, const PipelineShape& shape);

std::string to_text(const PlannedRun& run);  // "llama3-8b split evenly, a sample of 4096 tokens per micro-batch, bf16"

}  // namespace lockstep
