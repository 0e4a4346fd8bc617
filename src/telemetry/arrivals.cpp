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

std::string to_json_line(std::int64_t step, const WorkerChange& change) {
  nlohmann::ordered_json line{{"step", step},
                              {"update", change.update},
                              {"worker", change.worker},
                              {"change", change.joins ? "joined" : "lost"},
                              {"ticket", nullptr},
                              {"seconds", change.seconds},
                              {"why", change.why}};
  if (change.ticket) line["ticket"] = *change.ticket;
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string to_text(const WorkerChange& change) {
  if (change.joins) return fmt::format("worker {} has joined", change.worker);
  const std::string ticket = change.ticket ? fmt::format("; ticket {} is dealt again, {:.3g} s of work on it are lost",
                                                         *change.ticket, change.seconds)
                                           : std::string();
  return fmt::format("worker {} is lost: {}{}", change.worker, change.why, ticket);
}

std::string to_json_lines(std::int64_t step, const std::vector<Arrival>& arrivals,
                          const std::vector<WorkerChange>& changes) {
  std::string lines;
  auto change = changes.begin();
  for (const Arrival& one : arrivals) {
    for (; change != changes.end() && change->update <= one.update; ++change) lines += to_json_line(step, *change);
    lines += to_json_line(step, one);
  }
  for (; change != changes.end(); ++change) lines += to_json_line(step, *change);
  return lines;
}

namespace {

bool is_change(const std::string& line) {
  bool is = false;
  return read_json_line(line,
                        [&](JsonKeys keys, const JsonScalar&) { is |= keys.size() == 1 && keys[0] == "change"; }) &&
         is;
}

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
    if (is_change(line)) continue;
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
