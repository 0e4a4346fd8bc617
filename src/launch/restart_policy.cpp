#include "launch/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace lockstep {

namespace {

bool is_final(int code) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::done:
    case ExitCode::check_failed:
    case ExitCode::usage:
    case ExitCode::does_not_fit:
    case ExitCode::bad_input_file:
    case ExitCode::checkpoint:
    case ExitCode::interrupted:
      return true;
    case ExitCode::environment:
      return false;
  }
  return false;
}

std::string fault_of(const RanksEnd& end) {
  if (!end.found.empty()) return end.found;
  if (end.code <= 128) return fmt::format("the ranks have ended with exit code {}", end.code);
  const char* const name = ::strsignal(end.code - 128);
  return fmt::format("the ranks were ended by signal {} ({})", end.code - 128, name ? name : "unknown");
}

// What faults without a new step have in common.
std::string diagnosis_of(const std::set<std::string>& places, std::int64_t step) {
  if (places.contains("")) return "see `lockstep doctor` of the run folder, mend the cause";
  if (places.size() == 1)
    return fmt::format("all of them at {}, which is to blame: mend it, or leave its host out of --hosts",
                       *places.begin());
  return fmt::format(
      "at {} different places, so step {} or its data are to blame, not a host: see `lockstep doctor` of the run "
      "folder, mend the cause",
      places.size(), step + 1);
}

}  // namespace

RestartDecision RestartPolicy::decide(const RanksEnd& end, bool stopping) {
  if (end.found.empty() && (stopping || is_final(end.code))) return {.code = end.code};
  const std::string fault = fmt::format("{} after step {}", fault_of(end), end.last_step);
  const int failed = static_cast<int>(ExitCode::environment);
  if (stopping) return {.code = failed, .reason = fault};

  if (end.last_step > furthest_) {
    without_progress_ = 0;
    places_.clear();
  }
  ++without_progress_;
  places_.insert(end.place);
  furthest_ = std::max(furthest_, end.last_step);
  if (restarts_ >= most_restarts_)
    return {.code = failed,
            .reason = fmt::format("{}, and the run has been restarted {} times; see `lockstep doctor` of the run "
                                  "folder, then start it again with --resume and a larger --restarts",
                                  fault, restarts_)};
  if (without_progress_ >= kMostWithoutProgress)
    return {.code = failed,
            .reason = fmt::format("{}, the fault number {} in a row without a new step after {}: restarting does not "
                                  "help; {}, and start it again with --resume",
                                  fault, without_progress_, furthest_, diagnosis_of(places_, furthest_))};
  ++restarts_;
  return {.restarts = true, .reason = fault};
}

}  // namespace lockstep
