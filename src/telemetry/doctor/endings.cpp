// A run that hangs, or has ended without being done: who holds it, in which call, and who waits for that.
//
// While a run lives, each rank's file says every second where that rank is. A process that the system has stopped or
// that is gone is known at once where it is on this host. Elsewhere a file that is kStale seconds old speaks for it:
// ten times the period of the heartbeat. A rank of a process that lives is held when it has been in one place for kHeld
// seconds and for kHeldSteps times the longest of the last steps: a healthy rank is never in one place for longer than
// a step. Once the run is over, log.txt has what the others said of the one that did not come, or that a person has
// ended it. A run that is over and has no step is never healthy.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "telemetry/doctor/rules.h"
#include "telemetry/number_text.h"
#include "telemetry/stalls.h"

namespace lockstep::doctor {

namespace {

constexpr double kStale = 10, kHeld = 10, kHeldSteps = 5;
constexpr std::string_view kFailed = "the run has failed: ";
constexpr std::string_view kAbandoned = "a second signal: ended at once";  // cli/signals.cpp

bool has_ended(const RankStatus& state) { return state.now.doing == DoingKind::ended; }

double age(const RunRecords& run, const RankStatus& state) { return std::max(0.0, run.read_at - state.now.time); }

bool is_gone(const RunRecords& run, const RankStatus& state) {
  if (has_ended(state)) return false;
  return state.process == ProcessState::gone ||
         (state.process == ProcessState::unknown && run.running != true && age(run, state) > kStale);
}

bool is_stopped(const RunRecords& run, const RankStatus& state) {
  if (has_ended(state) || is_gone(run, state)) return false;
  return state.process == ProcessState::stopped || (state.process == ProcessState::unknown && age(run, state) > kStale);
}

std::string process_text(const RankNow& now) { return fmt::format("process {} on {}", now.pid, now.host); }

// What the others wait for.
void add_waiting(const RunRecords& run, const std::vector<int>& held, Finding& finding) {
  constexpr int kMost = 4;
  int told = 0, more = 0;
  for (const auto& [rank, state] : run.now) {
    if (std::ranges::find(held, rank) != held.end() || has_ended(state)) continue;
    if (state.now.doing != DoingKind::call) continue;
    if (++told <= kMost)
      finding.evidence.push_back(fmt::format("rank {} has waited {} {}", rank,
                                             seconds_text(state.now.seconds + age(run, state)), place_text(state.now)));
    else
      ++more;
  }
  if (more > 0) finding.evidence.push_back(fmt::format("{} more ranks wait", more));
}

void add_nccl(const RunRecords& run, Finding& finding) {
  if (run.plan.device == "cuda")
    finding.remedies.push_back("run again with NCCL_DEBUG=INFO set: NCCL then says which connection it waits for");
}

// The longest of the last steps, in seconds.
double longest_step(const RunRecords& run) {
  constexpr std::size_t kLast = 20;
  double longest = 0;
  for (std::size_t i = run.steps.size() - std::min(kLast, run.steps.size()); i < run.steps.size(); ++i)
    if (known(run.steps[i].seconds)) longest = std::max(longest, run.steps[i].seconds);
  return longest;
}

bool find_stopped(const RunRecords& run, std::vector<Finding>& findings) {
  std::vector<int> stopped;
  for (const auto& [rank, state] : run.now)
    if (is_stopped(run, state)) stopped.push_back(rank);
  if (stopped.empty()) return false;
  const RankStatus& first = run.now.at(stopped[0]);
  const bool known_stopped = first.process == ProcessState::stopped;
  Finding finding{.name = "hang", .severity = Severity::stopped};
  finding.summary = known_stopped
                        ? fmt::format("{} of {} is stopped: the system holds its process, and the others wait",
                                      rank_list(stopped), run.now.size())
                        : fmt::format("{} of {} has said nothing for {}: its process or its host hangs",
                                      rank_list(stopped), run.now.size(), seconds_text(age(run, first)));
  finding.evidence.push_back(fmt::format("rank {} ({}) was last seen {}, {} ago", stopped[0], process_text(first.now),
                                         place_text(first.now), seconds_text(age(run, first))));
  add_waiting(run, stopped, finding);
  if (known_stopped)
    finding.remedies.push_back(
        fmt::format("let it continue with `kill -CONT {}` on {}", first.now.pid, first.now.host));
  else
    finding.remedies.push_back(
        fmt::format("look after {}: is the host reachable, is its disk?", process_text(first.now)));
  finding.remedies.push_back(
      fmt::format("after run.deadline seconds the others end the run by themselves; then {}", how_to_continue(run)));
  add_nccl(run, finding);
  findings.push_back(std::move(finding));
  return true;
}

// A person did not want to wait for the end of the step.
bool find_interrupted(const RunRecords& run, const std::vector<int>& gone, std::vector<Finding>& findings) {
  const std::vector<std::string> log = log_of_last_attempt(run);
  const auto line = std::ranges::find_if(log, [](const std::string& one) { return one.starts_with(kAbandoned); });
  if (line == log.end()) return false;
  Finding finding{.name = "interrupted", .severity = Severity::stopped};
  finding.summary = "the run was ended at once by a second signal, as Ctrl-C pressed twice sends it";
  finding.evidence.push_back("log.txt: " + *line);
  const RankStatus& first = run.now.at(gone[0]);
  finding.evidence.push_back(fmt::format("rank {} was last seen {}", gone[0], place_text(first.now)));
  finding.remedies = {how_to_continue(run)};
  findings.push_back(std::move(finding));
  return true;
}

bool find_gone(const RunRecords& run, std::vector<Finding>& findings) {
  std::vector<int> gone;
  for (const auto& [rank, state] : run.now)
    if (is_gone(run, state)) gone.push_back(rank);
  if (gone.empty()) return false;
  if (find_interrupted(run, gone, findings)) return true;
  const RankStatus& first = run.now.at(gone[0]);
  const bool all = gone.size() == run.now.size();
  Finding finding{.name = "killed_rank", .severity = Severity::stopped};
  finding.summary =
      all && gone.size() > 1
          ? fmt::format("all {} ranks were killed: none has said that it ended", gone.size())
          : fmt::format("{} {} killed: {} process is gone and has not said that it ended", rank_list(gone),
                        gone.size() == 1 ? "was" : "were", gone.size() == 1 ? "its" : "their");
  finding.evidence.push_back(fmt::format("rank {} ({}) was last seen {}, {} before now", gone[0],
                                         process_text(first.now), place_text(first.now),
                                         seconds_text(age(run, first))));
  add_waiting(run, gone, finding);
  for (const std::string& line : log_of_last_attempt(run))
    if (line.starts_with(kFailed)) finding.evidence.push_back("log.txt: " + line);
  if (first.now.memory && first.now.memory->limit > 0)
    finding.evidence.push_back(fmt::format("its process used {} of {} of memory", byte_text(first.now.memory->used),
                                           byte_text(first.now.memory->limit)));
  finding.remedies = {
      fmt::format("ask the system of {} why: `dmesg | grep -i kill` names processes that had too much memory",
                  first.now.host),
      "if it was memory: `lockstep plan` says what the run needs; memory.recompute=projections and layout.micro lower "
      "it",
      how_to_continue(run)};
  findings.push_back(std::move(finding));
  return true;
}

// All processes live, and nobody moves.
bool find_held(const RunRecords& run, std::vector<Finding>& findings) {
  const double limit = std::max(kHeld, kHeldSteps * longest_step(run));
  const RankStatus* culprit = nullptr;
  bool waits = false;
  for (const auto& [rank, state] : run.now) {
    if (has_ended(state) || state.now.seconds < limit) continue;
    waits = waits || state.now.doing == DoingKind::call;
    // Who is in no call holds those who are; among calls, who is furthest behind.
    const auto behind = [](const RankStatus& s) {
      return std::tuple(s.now.doing == DoingKind::call, s.now.step, s.now.call);
    };
    if (!culprit || behind(state) < behind(*culprit)) culprit = &state;
  }
  if (!culprit || !waits) return false;
  const RankNow& now = culprit->now;
  Finding finding{.name = "hang", .severity = Severity::stopped};
  finding.summary =
      fmt::format("the run hangs: rank {} has been {} for {}", now.rank, place_text(now), seconds_text(now.seconds));
  finding.evidence.push_back(fmt::format("that is {}; the longest of the last steps took {}", process_text(now),
                                         seconds_text(longest_step(run))));
  add_waiting(run, {now.rank}, finding);
  finding.remedies = {
      fmt::format("look at that process: `cat /proc/{}/task/*/wchan` on {} says what it waits for", now.pid, now.host),
      fmt::format("after run.deadline seconds the others end the run by themselves; then {}", how_to_continue(run))};
  add_nccl(run, finding);
  findings.push_back(std::move(finding));
  return true;
}

// What log.txt says of a run that is over.
void find_failure(const RunRecords& run, std::vector<Finding>& findings) {
  std::string why;
  for (const std::string& line : log_of_last_attempt(run))
    if (line.starts_with(kFailed)) why = line.substr(kFailed.size());
  if (why.empty()) return;
  const auto says = [&](std::string_view text) { return why.find(text) != std::string::npos; };
  Finding finding{.name = "failed", .severity = Severity::stopped};
  if (says("not come within")) {
    finding.name = "hang";
    finding.summary = "the run has ended because a rank did not come to a call in time";
    finding.remedies = {"look after that rank: its process was stopped, or its host or its link hung",
                        "if it only was slow (a first step, a slow disk), wait longer with run.deadline",
                        how_to_continue(run)};
    add_nccl(run, finding);
  } else if (says(" is gone") || says("went away") || says("will not come") || says("has left")) {
    finding.name = "killed_rank";
    finding.summary = "the run has ended because a rank was gone";
    finding.remedies = {"ask the system why: `dmesg | grep -i kill` names processes that had too much memory",
                        how_to_continue(run)};
    add_nccl(run, finding);
  } else {
    finding.summary = "the run has failed";
    finding.remedies = {fmt::format("mend what the message names; then {}", how_to_continue(run))};
  }
  finding.evidence.push_back("log.txt: " + why);
  findings.push_back(std::move(finding));
}

// Nobody trains, nobody says why, and nothing was trained.
void find_no_steps(const RunRecords& run, std::vector<Finding>& findings) {
  Finding finding{.name = "no_steps", .severity = Severity::stopped};
  finding.summary = "the run is over and has not recorded a step";
  finding.evidence.push_back(run.log.empty() ? "log.txt is empty or missing" : "log.txt ends with: " + run.log.back());
  finding.remedies = {"if metrics.jsonl was moved or deleted, put it back",
                      "if the first step takes long, let the run do it", how_to_continue(run)};
  findings.push_back(std::move(finding));
}

}  // namespace

void find_endings(const RunRecords& run, std::vector<Finding>& findings) {
  // A full disk keeps the files of ranks from being written: they say nothing then.
  if (!findings.empty() && findings.front().name == "full_disk") return;
  if (find_gone(run, findings) || find_stopped(run, findings) || find_held(run, findings)) return;
  const bool moves = run.running == true || std::ranges::any_of(run.now, [](const auto& entry) {
                       return entry.second.process == ProcessState::running && !has_ended(entry.second);
                     });
  if (moves) return;
  const std::size_t before = findings.size();
  find_failure(run, findings);
  if (findings.size() == before && run.running == false && run.last.step < 0) find_no_steps(run, findings);
}

}  // namespace lockstep::doctor
