// A run in one line: how far it is, whether it is alive, how well it uses the machine.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "telemetry/run_status.h"

namespace lockstep {

// As telemetry/mfu_band.h names it; "" where it is not known.
std::string_view band_of_mfu(double mfu);

struct RunSummary {
  std::string name;
  RunState state = RunState::reading;
  std::string problem = {};  // why the run cannot be read; empty: it can
  StepPoint last = {};
  double eval_loss = kUnknown, eval_accuracy = kUnknown;
  std::int64_t eval_step = -1;
  std::optional<std::int64_t> steps = {}, parameters = {}, tokens_a_step = {};  // planned
  std::string layout = {}, device = {}, precision = {};
  std::int64_t ranks = 0;
  double seconds_left = kUnknown;  // at the pace of the last steps
  double idle_seconds = kUnknown;  // since the last step ended
  double mfu = kUnknown;           // of the run (telemetry/mfu_band.h)
  double mfu_6n = kUnknown;        // the same by the formula without attention
  std::int64_t not_updated = 0, bad_lines = 0;
  BytesOfTags bytes = {}, peak_bytes = {};  // of rank 0
  SentOnAxes sent = {};
  RunHealth health = {};
};

RunSummary summarize(const std::string& name, const RunRecords& run);

}  // namespace lockstep
