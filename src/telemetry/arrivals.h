// The order in which an asynchronous run's gradients were applied, and arrivals.jsonl, which records it.
//
// A line is one update of the weights: step (which it belongs to, the first being 1), update (from 0 on), worker (the
// dp rank that computed its gradient), ticket (from 0 on: which part of the samples it was computed on) and version
// (updates that its weights had behind them, so update - version is its staleness). Lines are in the order of updates,
// and none is missing between two.
//
// parallel/arrival_order.h makes the order, and repeats one.
#pragma once
#include <cstdint>
#include <filesystem>
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

std::string to_json_line(std::int64_t step, const Arrival& arrival);
// All of them, at least one. UserError (bad_input_file) naming the line that is none, or that does not follow the last.
std::vector<Arrival> read_arrivals(const std::filesystem::path& file);

struct Staleness {
  double mean = 0;
  std::int64_t most = 0;
};
Staleness staleness_of(const std::vector<Arrival>& arrivals);

}  // namespace lockstep
