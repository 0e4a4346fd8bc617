// The order in which an asynchronous run's gradients were applied, and arrivals.jsonl, which records it.
//
// A line is one update of the weights: step (which it belongs to, the first being 1), update (from 0 on), worker (the
// dp rank that computed its gradient), ticket (from 0 on: which part of the samples it was computed on) and version
// (updates that its weights had behind them, so update - version is its staleness). Lines are in the order of updates,
// and none is missing between two.
//
// Where workers die and join (train/async_steps.h), there are lines of that between them, each before the first update
// after it: step, update (how many had been made), worker, change ("lost" or "joined"), ticket (that a lost worker was
// at, which is dealt again; null where it was at none), seconds (of work on it that are lost; of one that joined, since
// it was lost or the run began) and why. They say what happened, and who repeats the order passes over them.
//
// parallel/arrival_order.h makes the order, and repeats one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct Arrival {
  std::int64_t update = 0;
  std::int64_t worker = 0;
  std::int64_t ticket = 0;
  std::int64_t version = 0;
  std::int64_t staleness() const { return update - version; }
  bool operator==(const Arrival&) const = default;
};

inline constexpr const char* kArrivalsName = "arrivals.jsonl";

// That a worker was lost, or has joined.
struct WorkerChange {
  std::int64_t update = 0;
  std::int64_t worker = 0;
  bool joins = false;
  std::optional<std::int64_t> ticket = {};
  double seconds = 0;
  std::string why = {};  // it is lost
};

std::string to_json_line(std::int64_t step, const Arrival& arrival);
std::string to_json_line(std::int64_t step, const WorkerChange& change);
std::string to_text(const WorkerChange& change);
// A step's, in the order of the file.
std::string to_json_lines(std::int64_t step, const std::vector<Arrival>& arrivals,
                          const std::vector<WorkerChange>& changes);
// All of them, at least one. UserError (bad_input_file) naming the line that is none, or that does not follow the last.
std::vector<Arrival> read_arrivals(const std::filesystem::path& file);

struct Staleness {
  double mean = 0;
  std::int64_t most = 0;
};
Staleness staleness_of(const std::vector<Arrival>& arrivals);

}  // namespace lockstep
