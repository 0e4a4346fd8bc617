#include "telemetry/step_lines.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "telemetry/partial_file.h"

namespace lockstep {

namespace {
std::optional<std::int64_t> step_of(const std::string& line) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  const auto step = object.find("step");
  if (step == object.end() || !step->is_number_integer()) return std::nullopt;
  if (step->is_number_unsigned() && !std::in_range<std::int64_t>(step->get<std::uint64_t>())) return std::nullopt;
  return step->get<std::int64_t>();
}
}  // namespace

int open_step_lines(const std::filesystem::path& path, std::int64_t last_step,
                    const std::function<void(std::int64_t step)>& kept) {
  PartialFile file(path);
  if (last_step > 0) {
    std::ifstream old(path);
    for (std::string line; std::getline(old, line) && !old.eof();) {
      const std::optional<std::int64_t> step = step_of(line);
      if (!step || *step > last_step) continue;
      file.print("{}\n", line);
      if (kept) kept(*step);
    }
  }
  return file.finish_open();
}

}  // namespace lockstep
