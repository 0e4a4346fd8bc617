#include "pictures/timeline_grid.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace lockstep {

namespace {

constexpr double kFinest = 1e-5, kRounding = 1e-9;  // of the makespan

// Euclid's, of numbers that sums have rounded.
double common_measure(double a, double b, double tolerance) {
  while (b > tolerance) a = std::exchange(b, std::fmod(a, b));
  return a;
}

}  // namespace

TimelineGrid::TimelineGrid(const PipelineTimeline& line) : makespan(line.makespan()) {
  first = shortest = std::numeric_limits<double>::infinity();
  int last_chunk = 0;
  for (const auto& stage : line.stages) {
    most_steps = std::max(most_steps, stage.size());
    for (const ChunkSpan& span : stage) {
      first = std::min(first, span.begin);
      if (span.end > span.begin) shortest = std::min(shortest, span.end - span.begin);
      most_micro = std::max(most_micro, span.action.micro);
      last_chunk = std::max(last_chunk, span.action.chunk);
      has[static_cast<int>(span.action.step)] = true;
    }
  }
  if (!std::isfinite(first)) first = 0;
  if (!std::isfinite(shortest)) shortest = 0;
  nth_.assign(static_cast<std::size_t>(last_chunk) + 1, 0);
  for (const auto& stage : line.stages) {
    std::set<int> own;
    for (const ChunkSpan& span : stage) own.insert(span.action.chunk);
    int n = 0;
    for (const int chunk : own) nth_[static_cast<std::size_t>(chunk)] = n++;
    chunks = std::max(chunks, n);
  }
  for (const auto& stage : line.stages)
    for (const ChunkSpan& span : stage)
      for (const double time : {span.begin - first, span.end - first})
        if (unit > makespan * kFinest || unit == 0) unit = common_measure(time, unit, makespan * kRounding);
  if (unit <= makespan * kFinest) unit = 0;
}

double round_interval(double least) {
  if (!(least > 0) || !std::isfinite(least)) return 1;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double digit : {1., 2., 5.})
    if (digit * power >= least * (1 - 1e-9)) return digit * power;
  return 10 * power;
}

}  // namespace lockstep
