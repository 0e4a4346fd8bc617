// Runs whose loop begins steps before it has waited for those before them: what they record, save and learn, on any
// device, with a sample in the data that makes one step overflow.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "train/loop.h"

namespace lockstep::tests {

struct AheadOptions {
  RunDevice device = RunDevice::cpu;
  int steps_at_once = 1;
  std::optional<BadValues> bad_values = {};  // what to do about the step that overflows; none: no step does
  PrecisionSpec precision = Precision::fp32;
  double dropout = 0.25;         // 0: steps are the same work each time, and may be captured
  std::int64_t stop_after = -1;  // the watcher wants to stop when it has seen this many steps
};

struct AheadRun {
  Ending ending = Ending::finished;
  Progress progress;
  std::vector<std::string> records;  // of steps and evaluations: every number to the bit
  std::vector<std::string> notes;    // and why it ended, if by a bad value
  std::vector<std::int64_t> saved;
  std::vector<std::vector<double>> weights;
  std::int64_t bad_step = 0;            // the one that overflows
  std::vector<double> loss_scales;      // by step
  std::vector<std::int64_t> overflows;  // steps
};

// Twelve steps of a small Llama, evaluated after every third and saved after every fourth.
AheadRun run_ahead(const AheadOptions& options);

// The first `steps` records of steps.
std::vector<std::string> steps_of(const AheadRun& run, std::int64_t steps);

}  // namespace lockstep::tests
