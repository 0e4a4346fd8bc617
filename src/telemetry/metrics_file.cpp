#include "telemetry/metrics_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "telemetry/step_lines.h"

namespace lockstep {

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t last_step)
    : file_(path, open(path, last_step)) {}

int MetricsFile::open(const std::filesystem::path& path, std::int64_t last_step) {
  std::optional<double> kept, began, ended;  // when the last step that stays ended; when the lost ones began and ended
  std::set<std::int64_t> dropped;
  const auto number = [](const nlohmann::json& line, const char* key) -> std::optional<double> {
    const auto found = line.find(key);
    return found != line.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
  };
  const auto keeps = [&](const nlohmann::json& line) {
    const std::int64_t step = line["step"];
    const bool stays = step <= last_step;
    const std::optional<double> ms = number(line, "step_ms"), time = number(line, "time");
    if (!ms || !time) return stays;  // an evaluation
    if (stays) {
      kept = time;
    } else {
      dropped.insert(step);
      if (!began) began = *time - *ms * 1e-3;
      ended = time;
    }
    return stays;
  };
  const int descriptor = open_lines(path, keeps, last_step > 0 ? before_step_after(path, last_step) : 0);
  const std::optional<double> from = kept ? kept : began;
  if (from)
    lost_ = LostSteps{.steps = std::ssize(dropped), .from = *from, .until = std::max(*from, ended.value_or(*from))};
  return descriptor;
}

}  // namespace lockstep
