#include "dashboard/run_summary.h"

#include <algorithm>

#include "telemetry/mfu_band.h"

namespace lockstep {

std::string_view band_of_mfu(double mfu) { return known(mfu) ? name_of(mfu_band(mfu)) : ""; }

RunSummary summarize(const std::string& name, const RunRecords& run) {
  RunSummary s{.name = name, .state = state_of(run), .last = run.last};
  if (!run.evaluations.empty()) {
    s.eval_loss = run.evaluations.back().loss;
    s.eval_accuracy = run.evaluations.back().accuracy;
    s.eval_step = run.evaluations.back().step;
  }
  s.steps = run.plan.steps;
  s.parameters = run.plan.parameters;
  s.tokens_a_step = run.plan.tokens_a_step;
  s.layout = run.plan.layout.value_or("");
  s.device = run.plan.device.value_or("");
  s.precision = run.plan.precision.value_or("");
  s.ranks = run.plan.ranks.value_or(static_cast<std::int64_t>(std::max(run.ranks.size(), run.now.size())));
  if (s.state == RunState::running && s.steps && *s.steps > run.last.step)
    s.seconds_left = recent_pace(run) * static_cast<double>(*s.steps - run.last.step);
  s.idle_seconds = run.read_at - run.last.time;
  s.mfu = run.mfu.value().value_or(kUnknown);
  if (run.plan.model_flops_6n_a_step && run.plan.model_flops_a_step.value_or(0) > 0)
    s.mfu_6n = s.mfu * *run.plan.model_flops_6n_a_step / *run.plan.model_flops_a_step;
  s.not_updated = run.not_updated;
  s.bad_lines = run.bad_lines;
  s.bytes = run.detail.bytes;
  s.peak_bytes = run.detail.peak_bytes;
  s.sent = run.detail.sent;
  s.health = health_of(run);
  return s;
}

}  // namespace lockstep
