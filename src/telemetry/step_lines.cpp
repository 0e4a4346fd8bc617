#include "telemetry/step_lines.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "telemetry/partial_file.h"

namespace lockstep {

namespace {
bool has_step(const nlohmann::json& line) {
  if (!line.is_object()) return false;
  const auto step = line.find("step");
  if (step == line.end() || !step->is_number_integer()) return false;
  return !step->is_number_unsigned() || std::in_range<std::int64_t>(step->get<std::uint64_t>());
}
}  // namespace

int open_lines(const std::filesystem::path& path, const std::function<bool(const nlohmann::json& line)>& keeps) {
  PartialFile file(path);
  std::ifstream old(path);
  for (std::string line; std::getline(old, line) && !old.eof();) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (has_step(object) && keeps(object)) file.print("{}\n", line);
  }
  return file.finish_open();
}

int open_step_lines(const std::filesystem::path& path, std::int64_t last_step,
                    const std::function<void(std::int64_t step)>& kept) {
  if (last_step <= 0) return PartialFile(path).finish_open();
  return open_lines(path, [&](const nlohmann::json& line) {
    const std::int64_t step = line["step"];
    if (step > last_step) return false;
    if (kept) kept(step);
    return true;
  });
}

}  // namespace lockstep
