#include "spec/layout/stage_cut.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace lockstep {

namespace {
// Beyond this the search would take seconds, and chunks have enough units that it hardly matters where one ends.
constexpr double kMostCutWork = 2e8;
}  // namespace

std::vector<int> cut_by_cost(std::span<const double> costs, int chunks) {
  const int units = static_cast<int>(costs.size());
  LOCKSTEP_CHECK(chunks >= 1 && chunks <= units, "{} units in {} chunks", units, chunks);
  if (static_cast<double>(chunks) * units * units > kMostCutWork) return cut_evenly(units - 2, chunks);
  std::vector<double> before(costs.size() + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  // Of the first n units in k runs: the dearest run and the sum of squares, and where the last run begins.
  using Value = std::pair<double, double>;
  const Value never{std::numeric_limits<double>::infinity(), 0};
  std::vector<Value> best(costs.size() + 1, never);
  best[0] = {0, 0};
  std::vector<std::vector<int>> begins(static_cast<std::size_t>(chunks), std::vector<int>(costs.size() + 1, 0));
  for (int k = 0; k < chunks; ++k) {
    std::vector<Value> next(costs.size() + 1, never);
    for (int n = k + 1; n <= units - (chunks - 1 - k); ++n)
      for (int from = k; from < n; ++from) {
        const double run = before[n] - before[from];
        const Value value{std::max(best[from].first, run), best[from].second + run * run};
        if (value < next[n]) next[n] = value, begins[k][n] = from;
      }
    best = std::move(next);
  }
  std::vector<int> cut(static_cast<std::size_t>(chunks));
  for (int k = chunks - 1, end = units; k >= 0; --k) cut[k] = end = begins[k][end];
  return cut;
}

std::vector<int> cut_evenly(std::int64_t layers, int chunks) {
  std::vector<std::int64_t> each(static_cast<std::size_t>(chunks), layers / chunks);
  std::int64_t more = layers % chunks;
  const auto give = [&](int chunk) {
    if (more > 0) ++each[static_cast<std::size_t>(chunk)], --more;
  };
  for (int k = 1; k < chunks - 1; ++k) give(k);
  give(0);
  give(chunks - 1);
  return cut_by_hand(each);
}

std::vector<int> cut_by_hand(std::span<const std::int64_t> layers) {
  std::vector<int> begins;
  int next = 1;  // after the embedding
  for (const std::int64_t count : layers) {
    begins.push_back(begins.empty() ? 0 : next);
    next += static_cast<int>(count);
  }
  return begins;
}

}  // namespace lockstep
