#include "dashboard/run_answers.h"

#include <algorithm>
#include <set>

#include "dashboard/downsample.h"
#include "telemetry/doctor/doctor.h"

namespace lockstep {

namespace {

using nlohmann::json;

json number(double value) { return known(value) ? json(value) : json(nullptr); }
template <class T>
json number(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json curve_json(const std::vector<CurvePoint>& curve, double begin) {
  json x = json::array(), t = json::array(), y = json::array();
  for (const CurvePoint& point : curve) {
    x.push_back(point.step);
    t.push_back(number(point.time - begin));
    y.push_back(number(point.value));
  }
  return {{"x", std::move(x)}, {"t", std::move(t)}, {"y", std::move(y)}};
}

// Adds the curve to `all` unless no value of it is known.
template <class Points, class Value>
void add_curve(json& all, const char* name, const Points& points, const StepRange& range, double begin, Value value) {
  std::vector<CurvePoint> curve;
  bool any = false;
  for (const auto& point : points) {
    if (point.step < range.from || point.step > range.to) continue;
    curve.push_back({.step = point.step, .value = value(point), .time = point.time});
    any = any || known(curve.back().value);
    if (!known(curve.back().value)) curve.back().value = kUnknown;
  }
  if (any) all[name] = curve_json(downsample(curve), begin);
}

json history_json(const std::vector<StepPoint>& steps) {
  json x = json::array(), ms = json::array();
  const std::size_t width = (steps.size() + kMostHistoryPoints - 1) / kMostHistoryPoints;
  for (std::size_t begin = 0; begin < steps.size(); begin += width) {
    const std::size_t end = std::min(begin + width, steps.size());
    std::array<double, kTimeUses> sums{};
    int told = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (!steps[i].has_times()) continue;
      ++told;
      for (std::size_t use = 0; use < sums.size(); ++use) sums[use] += steps[i].mean[use];
    }
    if (told == 0) continue;
    json means = json::array();
    for (const double sum : sums) means.push_back(1e3 * sum / told);
    x.push_back(steps[end - 1].step);
    ms.push_back(std::move(means));
  }
  return {{"x", std::move(x)}, {"ms", std::move(ms)}};
}

struct TimesRow {
  int rank = 0;
  std::int64_t first = 0, last = 0;
  double seconds = 0, busy = 0;
  std::array<double, kTimeUses> uses{};
};

TimesRow recent_times(int rank, const RankHistory& history) {
  constexpr std::size_t kRecent = 50;
  TimesRow t{.rank = rank};
  const std::size_t count = std::min(kRecent, history.steps.size());
  for (std::size_t i = history.steps.size() - count; i < history.steps.size(); ++i) {
    const RankPoint& step = history.steps[i];
    for (std::size_t use = 0; use < t.uses.size(); ++use)
      t.uses[use] += static_cast<double>(step.uses[use]) / static_cast<double>(count);
    t.seconds += static_cast<double>(step.seconds) / static_cast<double>(count);
    t.busy += step.busy() / static_cast<double>(count);
  }
  t.first = history.steps[history.steps.size() - count].step;
  t.last = history.steps.back().step;
  return t;
}

// One row for each, or for each group of neighbours the one that has most; `of` is how many the row speaks for.
template <class Row, class Size, class Write>
json rank_rows(const std::vector<Row>& rows, Size size, Write write) {
  json all = json::array();
  const std::size_t width = std::max<std::size_t>(1, (rows.size() + kMostRankRows - 1) / kMostRankRows);
  for (std::size_t begin = 0; begin < rows.size(); begin += width) {
    const auto first = rows.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = rows.begin() + static_cast<std::ptrdiff_t>(std::min(begin + width, rows.size()));
    json row = write(*std::max_element(first, last, [&](const Row& a, const Row& b) { return size(a) < size(b); }));
    row["of"] = last - first;
    all.push_back(std::move(row));
  }
  return all;
}

struct MemoryRow {
  int rank = 0;
  BytesOfTags now, peak, planned;
  std::int64_t planned_peak = -1;

  std::int64_t size() const {
    std::int64_t sum = 0;
    for (const auto& [tag, bytes] : peak.empty() ? planned : peak) sum += bytes;
    return sum;
  }
};

json by_tag(const BytesOfTags& bytes, const std::set<std::string>& tags) {
  if (bytes.empty()) return nullptr;
  json all = json::array();
  for (const std::string& tag : tags) {
    const auto found = bytes.find(tag);
    all.push_back(found == bytes.end() ? 0 : found->second);
  }
  return all;
}

}  // namespace

json summary_json(const RunSummary& s) {
  return {{"name", s.name},
          {"state", name_of(s.state)},
          {"problem", s.problem},
          {"step", s.last.step},
          {"steps", number(s.steps)},
          {"loss", number(s.last.loss)},
          {"eval_loss", number(s.eval_loss)},
          {"eval_accuracy", number(s.eval_accuracy)},
          {"eval_step", s.eval_step},
          {"grad_norm", number(s.last.grad_norm)},
          {"lr", number(s.last.lr)},
          {"tokens_per_s", number(s.last.tokens_per_s)},
          {"step_ms", number(1e3 * s.last.seconds)},
          {"mfu", number(s.last.mfu)},
          {"run_mfu", number(s.mfu)},
          {"mfu_6n", number(s.mfu_6n)},
          {"band", band_of_mfu(s.mfu)},
          {"bubble", number(s.last.bubble)},
          {"slowest_rank", s.last.slowest_rank},
          {"seconds_left", number(s.seconds_left)},
          {"idle_seconds", number(s.idle_seconds)},
          {"layout", s.layout},
          {"device", s.device},
          {"precision", s.precision},
          {"ranks", s.ranks},
          {"parameters", number(s.parameters)},
          {"tokens_a_step", number(s.tokens_a_step)},
          {"not_updated", s.not_updated},
          {"bad_lines", s.bad_lines},
          {"launch", to_json(s.health)}};
}

json curves_json(const RunRecords& run, const StepRange& range) {
  json all = json::object();
  const double begin = run.steps.empty() ? 0 : run.steps.front().time;
  const auto add = [&](const char* name, auto value) { add_curve(all, name, run.steps, range, begin, value); };
  add("loss", [](const StepPoint& p) { return p.loss; });
  add("lr", [](const StepPoint& p) { return p.lr; });
  add("grad_norm", [](const StepPoint& p) { return p.grad_norm; });
  add("tokens_per_s", [](const StepPoint& p) { return p.tokens_per_s; });
  add("mfu", [](const StepPoint& p) { return p.mfu; });
  add("step_ms", [](const StepPoint& p) { return 1e3 * p.seconds; });
  add("staleness", [](const StepPoint& p) { return static_cast<double>(p.staleness); });
  add("divergence", [](const StepPoint& p) { return static_cast<double>(p.divergence); });
  add("compression_error", [](const StepPoint& p) { return static_cast<double>(p.compression_error); });
  add_curve(all, "eval_loss", run.evaluations, range, begin, [](const EvaluationPoint& p) { return p.loss; });
  return all;
}

json times_json(const RunRecords& run) {
  std::vector<TimesRow> times;
  for (const auto& [rank, history] : run.ranks)
    if (!history.steps.empty()) times.push_back(recent_times(rank, history));
  json rows = rank_rows(
      times, [](const TimesRow& t) { return t.busy; },
      [](const TimesRow& t) {
        json uses = json::array();
        for (const double seconds : t.uses) uses.push_back(1e3 * seconds);
        return json{{"rank", t.rank},
                    {"steps", {t.first, t.last}},
                    {"ms", 1e3 * t.seconds},
                    {"busy_ms", 1e3 * t.busy},
                    {"uses", std::move(uses)}};
      });
  return {{"uses", kTimeUseNames},
          {"ranks", std::move(rows)},
          {"history", history_json(run.steps)},
          {"slowest", run.last.slowest_rank}};
}

json memory_json(const RunRecords& run) {
  std::map<int, MemoryRow> ranks;
  for (const PlannedMemory& planned : run.plan.memory) {
    ranks[planned.rank].planned = planned.by_tag;
    ranks[planned.rank].planned_peak = planned.peak;
  }
  for (const auto& [rank, history] : run.ranks) {
    if (history.bytes.empty() && history.peak_bytes.empty()) continue;
    ranks[rank].now = history.bytes;
    ranks[rank].peak = history.peak_bytes;
  }
  if (!run.detail.bytes.empty() && ranks[0].peak.empty()) {
    ranks[0].now = run.detail.bytes;
    ranks[0].peak = run.detail.peak_bytes;
  }
  std::set<std::string> tags;
  std::vector<MemoryRow> rows;
  for (auto& [rank, memory] : ranks) {
    memory.rank = rank;
    for (const BytesOfTags* bytes : {&memory.now, &memory.peak, &memory.planned})
      for (const auto& [tag, count] : *bytes) tags.insert(tag);
    rows.push_back(memory);
  }
  return {{"tags", tags},
          {"ranks", rank_rows(
                        rows, [](const MemoryRow& m) { return m.size(); },
                        [&](const MemoryRow& m) {
                          return json{{"rank", m.rank},
                                      {"now", by_tag(m.now, tags)},
                                      {"peak", by_tag(m.peak, tags)},
                                      {"planned", by_tag(m.planned, tags)},
                                      {"planned_peak", m.planned_peak < 0 ? json(nullptr) : json(m.planned_peak)}};
                        })}};
}

json events_json(const RunRecords& run) {
  json all = json::array();
  for (auto event = run.events.rbegin(); event != run.events.rend() && all.size() < kMostShownEvents; ++event)
    all.push_back({{"time", number(event->time)},
                   {"error", number(event->error)},
                   {"rank", event->rank},
                   {"kind", event->kind},
                   {"step", event->step},
                   {"seconds", number(event->seconds)},
                   {"culprit", event->culprit},
                   {"text", event->text}});
  return all;
}

json findings_json(const RunRecords& run) {
  json all = json::array();
  for (const Finding& finding : diagnose(run))
    all.push_back({{"name", finding.name},
                   {"severity", name_of(finding.severity)},
                   {"summary", finding.summary},
                   {"evidence", finding.evidence},
                   {"remedies", finding.remedies}});
  return {{"healthy", all.empty() ? healthy_text(run) : ""}, {"findings", std::move(all)}};
}

}  // namespace lockstep
