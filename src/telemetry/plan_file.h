// RUN/plan.json: what `train` knew of the run before its first step, as far as the file says so.
//
// Every field is optional: a number that is not there, or is of another type, is nothing. docs/formats.md lists them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "telemetry/prediction_score.h"

namespace lockstep {

struct PlannedMemory {  // of one rank, bytes
  int rank = 0;
  std::int64_t peak = 0;
  std::map<std::string, std::int64_t> by_tag;  // the peak of each tag
};

struct PlannedSent {  // by one rank in a step, by axis
  struct Axis {
    std::int64_t calls = 0, bytes = 0;
  };
  int rank = 0;
  std::map<std::string, Axis> by_axis;
};

struct IdealSpan {  // of the pipeline's ideal schedule; times in units of one step
  int rank = 0;
  std::string name;
  double begin = 0, end = 0;
};

struct RunPlan {
  bool found = false;  // there is a plan.json and it is an object
  std::optional<std::string> layout, device, precision, schedule, recompute, offload, peak_source;
  std::optional<std::int64_t> ranks, steps, tokens_a_step, parameters, micro, micro_batch, seq, global_batch, bucket,
      zero, warmup, cores, host_cores, threads, moved_bytes;
  std::optional<double> model_flops_a_step, model_flops_6n_a_step, peak_flops, lr, clip, link_latency_s,
      link_bytes_per_s, ideal_bubble, offload_share;
  std::optional<bool> overlap;
  std::map<std::string, std::int64_t> axes;  // "dp" → 2
  std::vector<PlannedMemory> memory;
  std::vector<PlannedSent> sent;
  std::vector<IdealSpan> ideal;
  std::optional<PredictedStep> predicted;  // of a run with run.machine
};

inline constexpr std::size_t kMostPlanBytes = std::size_t{1} << 28;

// Not found when there is no such file, or it is damaged or above kMostPlanBytes.
RunPlan read_run_plan(const std::filesystem::path& file);
RunPlan parse_run_plan(std::string_view text);

}  // namespace lockstep
