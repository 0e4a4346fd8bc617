#include "telemetry/doctor/time_view.h"

#include <algorithm>

namespace lockstep::doctor {

namespace {

constexpr std::int64_t kFirstSteps = 2;

double median_in(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

RankTimes times_of(const RankHistory& history, std::int64_t from) {
  std::array<std::vector<double>, kTimeUses> uses;
  std::vector<double> busy;
  for (const RankPoint& step : history.steps) {
    if (step.step < from) continue;
    for (std::size_t use = 0; use < uses.size(); ++use) uses[use].push_back(step.uses[use]);
    busy.push_back(step.busy());
  }
  RankTimes times;
  for (std::size_t use = 0; use < uses.size(); ++use) times.uses.seconds[use] = median_in(uses[use]);
  times.busy = median_in(busy);
  return times;
}

}  // namespace

std::int64_t TimeView::along(const std::string& axis) const {
  const auto found = axes.find(axis);
  return found == axes.end() ? 1 : std::max<std::int64_t>(1, found->second);
}

std::int64_t TimeView::stage_of(int rank) const { return rank / (along("cp") * along("tp")) % along("pp"); }

double TimeView::least_wait(TimeUse wait) const {
  double least = ranks.empty() ? 0 : 1e300;
  for (const auto& [rank, times] : ranks) least = std::min(least, times.uses[wait]);
  return step > 0 ? least / step : 0;
}

double TimeView::delayed() const {
  double sum = 0;
  for (const auto& [rank, times] : ranks) sum += times.delayed;
  return ranks.empty() ? 0 : sum / static_cast<double>(ranks.size());
}

TimeView view_of_time(const RunRecords& run) {
  TimeView view;
  view.axes = run.plan.axes;
  if (view.axes.empty()) view.axes["dp"] = static_cast<std::int64_t>(std::max<std::size_t>(1, run.ranks.size()));
  const std::int64_t first = run.steps.empty() ? 0 : run.steps.front().step + kFirstSteps;
  std::vector<double> totals, used, bubbles;
  std::int64_t from = run.last.step;
  for (std::size_t i = run.steps.size(); i-- > 0 && view.steps < kLastSteps;) {
    const StepPoint& point = run.steps[i];
    if (point.step < first || !point.has_times()) continue;
    ++view.steps;
    from = point.step;
    totals.push_back(point.total());
    if (known(point.mfu)) used.push_back(point.mfu);
    if (known(point.bubble)) bubbles.push_back(point.bubble);
    for (std::size_t use = 0; use < point.mean.size(); ++use) view.shares.seconds[use] += point.mean[use];
  }
  const double all = view.shares.total();
  for (double& share : view.shares.seconds) share = all > 0 ? share / all : 0;
  view.step = median_in(totals);
  if (!used.empty()) view.mfu = median_in(used);
  view.bubble = bubbles.empty() ? view.shares[TimeUse::wait_pp] : median_in(bubbles);
  for (const auto& [rank, history] : run.ranks) {
    RankTimes times = times_of(history, from);
    if (times.busy <= 0) continue;
    if (const auto now = run.now.find(rank); now != run.now.end() && now->second.now.cpu)
      times.delayed = now->second.now.cpu->waited_share();
    view.ranks[rank] = times;
  }
  return view;
}

}  // namespace lockstep::doctor
