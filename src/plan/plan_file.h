// RUN/plan.json: what a run was expected to take, for those who look at it later without making its objects.
//
// One JSON object: layout, axes, device and precision in words; what a step is (tokens, FLOPs, micro-batches); settings
// that a remedy may name; the peak of memory by tag and the messages of a step, of each rank; the link as measured; the
// ideal times of a pipeline's schedule; the step's predicted time, of a run that names a machine. docs/formats.md lists
// the fields. Readers take any of them as missing.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/step_prediction.h"
#include "spec/pipeline/schedule.h"
#include "train/link_probe.h"

namespace lockstep {

// What is known when the ranks are made.
struct PlanFacts {
  const RunSpec& spec;
  const std::vector<Plan>& stages;   // plan_stages()
  const PipelineSchedule& schedule;  // of one stage: no pipeline
  std::optional<double> peak_flops;  // of all ranks together
  std::string peak_source;           // where it is from, in words
  std::optional<LinkRate> link;
  std::int64_t shared_corpus = 0;        // bytes of text that rank 0 holds for all
  int cores = 1, host_cores = 1;         // that rank 0's process may use; of its host
  int threads = 1;                       // of a rank
  const MachineSpec* machine = nullptr;  // that the step was predicted on; none: it was not
  std::optional<StepPrediction> predicted = {};
};
// With an end of line.
std::string plan_json(const PlanFacts& facts);

}  // namespace lockstep
