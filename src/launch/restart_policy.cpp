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

}  // namespace

RestartDecision RestartPolicy::decide(const RanksEnd& end, bool stopping) {
  if (end.found.empty() && (stopping || is_final(end.code))) return {.code = end.code};
  const std::string fault = fmt::format("{} after step {}", fault_of(end), end.last_step);
  const int failed = static_cast<int>(ExitCode::environment);
  if (stopping) return {.code = failed, .reason = fault};

  without_progress_ = end.last_step > furthest_ ? 1 : without_progress_ + 1;
  furthest_ = std::max(furthest_, end.last_step);
  if (restarts_ >= most_restarts_)
    return {.code = failed,
            .reason = fmt::format("{}, and the run has been restarted {} times; see `lockstep doctor` of the run "
                                  "folder, then start it again with --resume and a larger --restarts",
                                  fault, restarts_)};
  if (without_progress_ >= kMostWithoutProgress)
    return {.code = failed,
            .reason = fmt::format("{}, the fault number {} in a row without a new step after {}: restarting does not "
                                  "help; see `lockstep doctor` of the run folder, mend the cause and start it again "
                                  "with --resume",
                                  fault, without_progress_, furthest_)};
  ++restarts_;
  return {.restarts = true, .reason = fault};
}

}  // namespace lockstep
