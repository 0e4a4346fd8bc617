#include "telemetry/arrivals.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "telemetry/json_line.h"

namespace lockstep {

std::string to_json_line(std::int64_t step, const Arrival& arrival) {
  return nlohmann::ordered_json{{"step", step},
                                {"update", arrival.update},
                                {"worker", arrival.worker},
                                {"ticket", arrival.ticket},
                                {"version", arrival.version}}
             .dump() +
         "\n";
}

namespace {

std::optional<Arrival> arrival_in(const std::string& line) {
  Arrival found;
  std::map<std::string, std::int64_t*> missing{
      {"update", &found.update}, {"worker", &found.worker}, {"ticket", &found.ticket}, {"version", &found.version}};
  const bool whole = read_json_line(line, [&](JsonKeys keys, const JsonScalar& value) {
    const auto wanted = keys.size() == 1 ? missing.find(keys[0]) : missing.end();
    const std::optional<std::int64_t> number = whole_number_in(value);
    if (wanted == missing.end() || !number) return;
    *wanted->second = *number;
    missing.erase(wanted);
  });
  if (!whole || !missing.empty() || found.version > found.update) return std::nullopt;
  return found;
}

}  // namespace

std::vector<Arrival> read_arrivals(const std::filesystem::path& file) {
  const auto refuse = [&](const std::string& problem) {
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", file.string(), problem),
                    fmt::format("name the {} of an asynchronous run's folder", kArrivalsName));
  };
  std::ifstream in(file, std::ios::binary);
  if (!in) refuse("cannot be read");
  std::vector<Arrival> all;
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    const std::optional<Arrival> arrival = arrival_in(line);
    if (!arrival && in.eof()) break;  // half a line, of a process that was killed
    if (!arrival) refuse(fmt::format("line {} is no arrival", number));
    if (arrival->update != (all.empty() ? arrival->update : all.back().update + 1))
      refuse(fmt::format("line {} is update {}, after update {}", number, arrival->update, all.back().update));
    all.push_back(*arrival);
  }
  if (all.empty()) refuse("has no arrivals");
  return all;
}

Staleness staleness_of(const std::vector<Arrival>& arrivals) {
  Staleness all;
  for (const Arrival& arrival : arrivals) {
    all.mean += static_cast<double>(arrival.staleness()) / static_cast<double>(arrivals.size());
    all.most = std::max(all.most, arrival.staleness());
  }
  return all;
}

}  // namespace lockstep
