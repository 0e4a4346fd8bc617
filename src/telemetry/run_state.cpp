#include "telemetry/run_state.h"

#include <algorithm>
#include <array>

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

}  // namespace

std::string_view name_of(RunState state) {
  constexpr std::array<std::string_view, kRunStates> kNames = {"reading",    "starting", "running", "stalled",
                                                               "recovering", "waiting",  "stopped", "ended"};
  return kNames[static_cast<std::size_t>(state)];
}

const LaunchState* launch_at_work(const RunRecords& run) {
  if (!run.launch || run.launch->state == LaunchPhase::ended) return nullptr;
  double heard = run.launch->since;
  for (const LaunchedHost& host : run.launch->hosts) {
    heard = std::max(heard, host.heard);
    if (host.role == HostRole::leader && process_state(host.name, host.pid) == ProcessState::gone) return nullptr;
  }
  return run.read_at - heard < kAgentLost ? &*run.launch : nullptr;
}

RunState state_of(const RunRecords& run) {
  if (const LaunchState* const launch = launch_at_work(run)) {
    if (launch->state == LaunchPhase::recovering) return RunState::recovering;
    if (launch->state == LaunchPhase::waiting) return RunState::waiting;
    if (launch->state == LaunchPhase::starting) return RunState::starting;
  }
  const bool all_steps = run.plan.steps && run.last.step >= *run.plan.steps;
  if (!run.running.value_or(false) && !beats(run))
    return all_steps || (ended_in_order(run) && !run.plan.steps) ? RunState::ended : RunState::stopped;
  if (run.last.step < 0) return RunState::starting;
  const double pace = recent_pace(run);
  const double patience = std::max(30.0, known(pace) ? 20 * pace : 0.0);
  return run.read_at - run.last.time > patience && !saves_or_evaluates(run) ? RunState::stalled : RunState::running;
}

double recent_pace(const RunRecords& run) {
  constexpr std::size_t kLooked = 50;
  if (run.steps.size() < 2) return kUnknown;
  const StepPoint& last = run.steps.back();
  const StepPoint& before = run.steps[run.steps.size() - std::min(kLooked, run.steps.size())];
  const double pace = (last.time - before.time) / static_cast<double>(last.step - before.step);
  return known(pace) && pace > 0 ? pace : kUnknown;
}

}  // namespace lockstep
