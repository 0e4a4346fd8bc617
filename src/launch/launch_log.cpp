#include "launch/launch_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "base/error.h"
#include "launch/clock.h"
#include "telemetry/culprit.h"
#include "telemetry/json_line.h"
#include "telemetry/step_record.h"

namespace lockstep {

using launch::seconds_since;

namespace {

constexpr std::streamoff kTail = 64 << 10;

// Calls `use` with each of the file's last lines; the first may have begun earlier, the last be half written.
template <class Use>
void for_last_lines(const std::filesystem::path& path, const Use& use) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return;
  file.seekg(std::max<std::streamoff>(0, std::streamoff(file.tellg()) - kTail));
  for (std::string line; std::getline(file, line);) use(line);
}

// train.copy_every of the resolved run file, once it is a number that copies are made by.
std::optional<std::int64_t> copy_every_in(const std::filesystem::path& run_file) {
  constexpr std::string_view kKey = "copy_every = ";
  std::ifstream file(run_file);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kKey)) continue;
    std::int64_t every = 0;
    const auto [end, error] = std::from_chars(line.data() + kKey.size(), line.data() + line.size(), every);
    return error == std::errc() && every > 0 ? std::optional(every) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::int64_t LaunchLog::last_step() const {
  std::int64_t last = 0;
  for_last_lines(folder_ / "metrics.jsonl", [&](const std::string& line) {
    std::optional<std::int64_t> step;
    const bool whole = read_json_line(line, [&](JsonKeys keys, const JsonScalar& value) {
      if (keys.size() == 1 && keys[0] == "step") step = whole_number_in(value);
    });
    if (whole && step) last = *step;
  });
  return last;
}

std::optional<int> LaunchLog::blamed_rank() const {
  if (epoch_began_ == 0) return std::nullopt;  // another agent has led it
  std::vector<ToldFault> faults;
  for_last_lines(folder_ / "events.jsonl", [&](const std::string& line) {
    const std::optional<RunEvent> event = read_run_event(line);
    if (!event || event->kind != name_of(EventKind::fault) || event->rank < 0 || !(event->time >= epoch_began_)) return;
    if (event->decision == name_of(Decision::go_on)) return;  // the run did
    faults.push_back({.rank = event->rank,
                      .culprit = event->culprit < 0 ? std::nullopt : std::optional(event->culprit),
                      .text = event->text});
  });
  return culprit_of(faults);
}

void LaunchLog::log(LoggedEvent event) const {
  event.time = seconds_since_1970();
  append_event(folder_ / "events.jsonl", event);
}

void LaunchLog::epoch_began() {
  epoch_began_ = seconds_since_1970();
  completed_ = false;
  begun_at_ = last_step();
}

void LaunchLog::decided(const Leader::Hands::Decided& decided) {
  const bool goes_on = decided.decision == Decision::go_on;
  if (!decided.fault.empty()) {
    log({.rank = kOfTheAgent,
         .kind = EventKind::fault,
         .step = decided.step,
         .text = decided.fault,
         .decision = goes_on ? std::optional(Decision::go_on) : std::nullopt,
         .culprit = decided.culprit});
    fault_ = {.time = seconds_since_1970(), .step = decided.step, .text = decided.fault};
  }
  LoggedEvent event{.rank = kOfTheAgent,
                    .kind = EventKind::decision,
                    .step = decided.step,
                    .text = decided.text,
                    .decision = decided.decision};
  if (decided.epoch > 0) {
    event.epoch = decided.epoch;
    event.ranks = decided.ranks;
  }
  log(event);
  if (decided.decision != Decision::end && !goes_on)
    open_ = {.at = Clock::now(), .step = decided.step, .resumed_at = decided.step, .decided = decided};
}

// The new epoch cuts metrics.jsonl back to the checkpoint's step and adds to it from there. Where both happen between
// two looks, the next new step is taken.
void LaunchLog::look() {
  if (!open_ && completed_) return;
  const std::int64_t step = last_step();
  begun_at_ = std::min(begun_at_, step);
  if (step > begun_at_) completed_ = true;
  if (!open_) return;
  open_->resumed_at = std::min(open_->resumed_at, step);
  if (step <= open_->resumed_at) return;
  const double seconds = seconds_since(open_->at);
  const Leader::Hands::Decided& decided = open_->decided;
  LoggedEvent event{.rank = kOfTheAgent,
                    .kind = EventKind::restart,
                    .step = open_->step,
                    .seconds = seconds,
                    .text = decided.fault.empty() ? decided.text : decided.fault,
                    .decision = decided.decision};
  log(event);
  if (fault_ && !decided.fault.empty()) fault_->cost_seconds = seconds;
  tell_(fmt::format("step {} is done, {:.1f} s after the {}", step, seconds,
                    decided.fault.empty() ? "ranks were asked to end" : "fault"));
  open_.reset();
}

void LaunchLog::write_state(const Leader& leader, int leading, const std::function<double(int agent)>& heard,
                            bool ended) {
  using Phase = Leader::Phase;
  const LaunchPhase phase = ended                              ? LaunchPhase::ended
                            : leader.phase() == Phase::waiting ? LaunchPhase::waiting
                            : open_                            ? LaunchPhase::recovering
                            : completed_                       ? LaunchPhase::running
                                                               : LaunchPhase::starting;
  const double now = seconds_since_1970();
  const bool changed = phase != phase_ || leader.epoch().number != written_epoch_ || phase_since_ == 0;
  if (!changed && seconds_since(written_) < 1) return;
  if (phase != phase_ || phase_since_ == 0) phase_since_ = now;
  phase_ = phase;
  written_epoch_ = leader.epoch().number;
  written_ = Clock::now();
  const Epoch& epoch = leader.epoch();
  LaunchState state{.epoch = epoch.number,
                    .state = phase,
                    .restarts = leader.restarts(),
                    .layout = epoch.layout.text,
                    .since = phase_since_,
                    .fault = fault_,
                    .copy_every = copies_ ? copy_every_in(folder_ / "run.toml") : std::nullopt};
  if (const auto goodput = goodput_.update(now, !ended)) state.goodput = std::min(1.0, goodput->share());
  for (const auto& [agent, facts] : leader.agents()) {
    LaunchedHost host{.name = facts.name,
                      .address = facts.address,
                      .pid = facts.process,
                      .role = agent == leading ? HostRole::leader : HostRole::member,
                      .heard = now - heard(agent)};
    if (agent == leading) state.leader = facts.name;
    for (std::size_t rank = 0; rank < epoch.slots.size(); ++rank)
      if (epoch.slots[rank].agent == agent) host.ranks.push_back(static_cast<int>(rank));
    if (epoch.slots.size() == 1 && !host.ranks.empty())  // one process has them all
      for (int rank = 1; rank < epoch.layout.ranks; ++rank) host.ranks.push_back(rank);
    if (host.ranks.empty() && agent != leading) host.role = HostRole::spare;
    state.hosts.push_back(std::move(host));
  }
  for (const auto& [agent, facts] : leader.lost_agents())
    state.hosts.push_back({.name = facts.name, .address = facts.address, .pid = facts.process, .role = HostRole::lost});
  try {
    write_launch_state(launch_file(folder_), state);
  } catch (const EnvironmentError&) {  // the next one is a second later
  }
}

}  // namespace lockstep
