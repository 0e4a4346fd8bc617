#include "telemetry/doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>

#include "telemetry/doctor/rules.h"
#include "telemetry/number_text.h"
#include "telemetry/step_record.h"

namespace lockstep {

namespace doctor {

std::vector<std::string> log_of_last_attempt(const RunRecords& run) {
  constexpr std::string_view kResumed[] = {"resuming from ", "no checkpoint there yet"};
  std::size_t begin = 0;
  for (std::size_t i = 0; i < run.log.size(); ++i)
    for (const std::string_view start : kResumed)
      if (run.log[i].starts_with(start)) begin = i + 1;
  return {run.log.begin() + static_cast<std::ptrdiff_t>(begin), run.log.end()};
}

std::string shell_quoted(const std::string& path) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!path.empty() && path[0] != '-' && path.find_first_not_of(kPlain) == std::string::npos) return path;
  std::string quoted = path[0] == '-' ? "'./" : "'";
  for (const char c : path) c == '\'' ? quoted += "'\\''" : quoted += c;
  return quoted + "'";
}

std::string resume_command(const RunRecords& run, const std::string& options) {
  const std::string folder = shell_quoted(run.folder.string());
  const std::string more = options.empty() ? "" : " " + options;
  if (!run.checkpoints.empty()) return fmt::format("`lockstep train --resume {}{}`", folder, more);
  return fmt::format("`lockstep train {} --out {} --resume{}`", shell_quoted((run.folder / "run.toml").string()),
                     folder, more);
}

std::string how_to_continue(const RunRecords& run) {
  return resume_command(run) +
         (run.checkpoints.empty()
              ? std::string(" begins again at step 0: no checkpoint was saved")
              : fmt::format(" continues from the newest checkpoint, of step {}", run.checkpoints.rbegin()->first));
}

std::string rank_list(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 8;
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  std::string text = "ranks ";
  for (std::size_t i = 0; i < std::min(kMost, ranks.size()); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kMost) text += fmt::format(" and {} more", ranks.size() - kMost);
  return text;
}

std::string percent(double share) { return fmt::format("{:.0f}%", share * 100); }

std::string seconds_text(double seconds) {
  if (seconds < 0.9995e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  return seconds < 120 ? fmt::format("{:.3g} s", seconds) : duration_text(seconds);
}

}  // namespace doctor

std::vector<Finding> diagnose(const RunRecords& run) {
  std::vector<Finding> findings;
  doctor::find_disk_trouble(run, findings);
  doctor::find_endings(run, findings);
  doctor::find_bad_values(run, findings);
  doctor::find_damaged_records(run, findings);
  doctor::find_throughput(run, findings);
  doctor::find_memory(run, findings);
  std::ranges::stable_sort(findings, [](const Finding& a, const Finding& b) {
    return a.severity != b.severity ? a.severity < b.severity : a.cost > b.cost;
  });
  return findings;
}

std::string healthy_text(const RunRecords& run) {
  if (run.last.step < 0) return "healthy so far: no step is recorded yet";
  std::string text = fmt::format("healthy: step {}", run.last.step);
  if (run.plan.steps) text += fmt::format(" of {}", *run.plan.steps);
  constexpr std::size_t kLast = 100;
  TimesByUse times;
  double tokens = 0, mfu = 0;
  std::size_t rated = 0, used = 0;
  for (std::size_t i = run.steps.size() - std::min(kLast, run.steps.size()); i < run.steps.size(); ++i) {
    const StepPoint& point = run.steps[i];
    for (int use = 0; use < kTimeUses; ++use)
      times.seconds[static_cast<std::size_t>(use)] += point.mean[static_cast<std::size_t>(use)];
    if (known(point.tokens_per_s)) tokens += point.tokens_per_s, ++rated;
    if (known(point.mfu)) mfu += point.mfu, ++used;
  }
  if (known(run.last.loss)) text += fmt::format(", loss {:.4f}", run.last.loss);
  if (rated > 0)
    text += fmt::format(", {} tokens/s", grouped_digits(std::llround(tokens / static_cast<double>(rated))));
  if (used > 0) text += fmt::format(", MFU {:.1f}%", 100 * mfu / static_cast<double>(used));
  if (const std::string shares = shares_text(times); !shares.empty()) text += "; time: " + shares;
  return text;
}

}  // namespace lockstep
