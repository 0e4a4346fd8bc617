#include "dashboard/run_summary.h"

#include <algorithm>
#include <array>

#include "telemetry/mfu_band.h"

namespace lockstep {

namespace {

constexpr double kBeatLost = 10;  // seconds: ranks/*.now is replaced every second

bool beats(const RunRecords& run) {
  return std::ranges::any_of(run.now, [&](const auto& entry) {
    const RankStatus& rank = entry.second;
    return rank.process != ProcessState::gone && rank.now.doing != DoingKind::ended &&
           run.read_at - rank.now.time < kBeatLost;
  });
}

bool ended_in_order(const RunRecords& run) {
  return !run.now.empty() &&
         std::ranges::all_of(run.now, [](const auto& entry) { return entry.second.now.doing == DoingKind::ended; });
}

bool saves_or_evaluates(const RunRecords& run) {
  return std::ranges::any_of(run.now, [](const auto& entry) {
    const DoingKind doing = entry.second.now.doing;
    return doing == DoingKind::saving || doing == DoingKind::evaluating;
  });
}

RunState state_of(const RunRecords& run) {
  const bool all_steps = run.plan.steps && run.last.step >= *run.plan.steps;
  if (!run.running.value_or(false) && !beats(run))
    return all_steps || (ended_in_order(run) && !run.plan.steps) ? RunState::ended : RunState::stopped;
  if (run.last.step < 0) return RunState::starting;
  const double pace = recent_pace(run);
  const double patience = std::max(30.0, known(pace) ? 20 * pace : 0.0);
  return run.read_at - run.last.time > patience && !saves_or_evaluates(run) ? RunState::stalled : RunState::running;
}

}  // namespace

std::string_view name_of(RunState state) {
  constexpr std::array<std::string_view, 6> kNames = {"reading", "starting", "running", "stalled", "stopped", "ended"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view band_of_mfu(double mfu) { return known(mfu) ? name_of(mfu_band(mfu)) : ""; }

double recent_pace(const RunRecords& run) {
  constexpr std::size_t kLooked = 50;
  if (run.steps.size() < 2) return kUnknown;
  const StepPoint& last = run.steps.back();
  const StepPoint& before = run.steps[run.steps.size() - std::min(kLooked, run.steps.size())];
  const double pace = (last.time - before.time) / static_cast<double>(last.step - before.step);
  return known(pace) && pace > 0 ? pace : kUnknown;
}

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
  return s;
}

}  // namespace lockstep
