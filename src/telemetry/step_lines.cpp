#include "telemetry/step_lines.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "telemetry/partial_file.h"

namespace lockstep {

namespace {
constexpr std::int64_t kLeastLooked = 256 << 10;  // bytes at a file's end

bool has_step(const nlohmann::json& line) {
  if (!line.is_object()) return false;
  const auto step = line.find("step");
  if (step == line.end() || !step->is_number_integer()) return false;
  return !step->is_number_unsigned() || std::in_range<std::int64_t>(step->get<std::uint64_t>());
}
}  // namespace

int open_lines(const std::filesystem::path& path, const std::function<bool(const nlohmann::json& line)>& keeps,
               std::int64_t from) {
  PartialFile file(path);
  std::ifstream old(path, std::ios::binary);
  std::string block(std::size_t{1} << 20, '\0');
  for (std::int64_t left = from; left > 0 && old;) {
    old.read(block.data(), static_cast<std::streamsize>(std::min<std::int64_t>(left, std::ssize(block))));
    file.write(std::string_view(block).substr(0, static_cast<std::size_t>(old.gcount())));
    left -= old.gcount();
  }
  for (std::string line; std::getline(old, line) && !old.eof();) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (has_step(object) && keeps(object)) file.print("{}\n", line);
  }
  return file.finish_open();
}

std::int64_t before_step_after(const std::filesystem::path& path, std::int64_t last_step) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::int64_t size = file ? static_cast<std::int64_t>(file.tellg()) : 0;
  for (std::int64_t window = kLeastLooked; window < size; window *= 4) {
    file.clear();
    file.seekg(size - window);
    std::string line;
    std::getline(file, line);  // the end of one
    const std::int64_t begin = file.tellg();
    if (!std::getline(file, line) || file.eof()) continue;
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (has_step(object) && object["step"].get<std::int64_t>() < last_step) return begin;
  }
  return 0;
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
