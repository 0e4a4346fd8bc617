#include "dashboard/trace_answers.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace lockstep {

namespace {

using nlohmann::json;

struct TracedStep {
  std::vector<const TraceSpan*> spans;
  double begin = 0, end = 0;
};

std::set<std::int64_t> traced_steps(const Trace& trace) {
  std::set<std::int64_t> steps;
  for (const TraceSpan& span : trace.spans) steps.insert(span.step);
  return steps;
}

TracedStep spans_of_step(const Trace& trace, std::int64_t step) {
  TracedStep found;
  for (const TraceSpan& span : trace.spans) {
    if (span.step != step) continue;
    found.begin = found.spans.empty() ? span.begin : std::min(found.begin, span.begin);
    found.end = found.spans.empty() ? span.end : std::max(found.end, span.end);
    found.spans.push_back(&span);
  }
  return found;
}

struct ShownSpan {
  double begin, end;
  int name, micro;     // of the longest; micro kSeveral: there are others
  double longest = 0;  // seconds of the span that gave the name
};
constexpr int kSeveral = -2;

// Those of one rank and kind, in order. What is shorter than `least` joins its neighbour unless more than that is
// between them.
std::vector<ShownSpan> joined(const std::vector<ShownSpan>& spans, double least) {
  std::vector<ShownSpan> kept;
  bool short_before = false;
  for (const ShownSpan& span : spans) {
    const bool is_short = span.end - span.begin < least;
    if (is_short && short_before && span.begin - kept.back().end < least) {
      ShownSpan& all = kept.back();
      all.end = std::max(all.end, span.end);
      if (span.longest > all.longest) all.name = span.name, all.longest = span.longest;
      all.micro = kSeveral;
    } else {
      kept.push_back(span);
      short_before = is_short;
    }
  }
  return kept;
}

int stage_of(const Trace& trace, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  return at < trace.stage_of.size() ? trace.stage_of[at] : -1;
}

double in_microseconds(double seconds) { return std::round(seconds * 1e9) / 1e3; }

struct ScheduleSpan {
  int row = 0;
  std::string name;
  double begin = 0, end = 0;
  bool backward = false;
};

// The share of rows x time in which nothing is computed.
double idle_share(const std::vector<ScheduleSpan>& spans, std::size_t rows, double seconds) {
  double busy = 0;
  for (const ScheduleSpan& span : spans) busy += span.end - span.begin;
  return rows == 0 || seconds <= 0 ? 0 : std::max(0.0, 1 - busy / (static_cast<double>(rows) * seconds));
}

json schedule_rows_json(const std::vector<ScheduleSpan>& spans, double begin, double seconds) {
  json all = json::array();
  for (const ScheduleSpan& span : spans) {
    if (all.size() >= kMostShownSpans) break;
    all.push_back({span.row, span.name, (span.begin - begin) / seconds, (span.end - begin) / seconds, span.backward});
  }
  return all;
}

}  // namespace

json timeline_json(const Trace& trace, const TimelineWindow& window) {
  const std::set<std::int64_t> steps = traced_steps(trace);
  if (steps.empty()) return {{"problem", "the trace holds no step"}};
  const std::int64_t step = steps.contains(window.step) ? window.step : *steps.rbegin();
  const TracedStep traced = spans_of_step(trace, step);
  const double length = traced.end - traced.begin;
  const double from = std::clamp(window.from, 0.0, length);
  const double to = window.to <= from ? length : std::min(window.to, length);

  std::set<int> ranks;
  for (const TraceSpan* span : traced.spans) ranks.insert(span->rank);
  const auto rows_wanted = static_cast<std::size_t>(std::clamp(window.ranks, 1, static_cast<int>(kMostTimelineRows)));
  std::map<std::string, int> numbers;
  std::map<std::pair<int, int>, std::vector<ShownSpan>> by_row;  // of rank and kind
  std::set<int> shown;
  for (auto rank = ranks.lower_bound(window.first_rank); rank != ranks.end() && shown.size() < rows_wanted; ++rank)
    shown.insert(*rank);
  for (const TraceSpan* span : traced.spans) {
    const double begin = span->begin - traced.begin, end = span->end - traced.begin;
    if (!shown.contains(span->rank) || end < from || begin > to) continue;
    const int name = numbers.try_emplace(span->name, static_cast<int>(numbers.size())).first->second;
    by_row[{span->rank, static_cast<int>(span->kind)}].push_back(
        {.begin = begin, .end = end, .name = name, .micro = span->micro, .longest = end - begin});
  }
  // Of a row at most three spans are kept for each stretch of `least`: a long one, a short one, one across the edge.
  const double stretches =
      static_cast<double>(kMostShownSpans) / 3 / static_cast<double>(std::max<std::size_t>(1, by_row.size()));
  const double least = (to - from) / std::clamp(stretches, 20.0, 1500.0);
  json rows = json::array();
  for (const int rank : shown) {
    json spans = json::array();
    for (auto row = by_row.lower_bound({rank, 0}); row != by_row.end() && row->first.first == rank; ++row) {
      std::ranges::sort(row->second, {}, &ShownSpan::begin);
      for (const ShownSpan& span : joined(row->second, least))
        spans.push_back(
            {in_microseconds(span.begin), in_microseconds(span.end), row->first.second, span.name, span.micro});
    }
    rows.push_back({{"rank", rank}, {"stage", stage_of(trace, rank)}, {"spans", std::move(spans)}});
  }
  json names = json::array(), kinds = json::array();
  for (std::size_t i = 0; i < numbers.size(); ++i) names.push_back("");
  for (const auto& [name, number] : numbers) names[static_cast<std::size_t>(number)] = name;
  for (int kind = 0; kind < kSpanKinds; ++kind) kinds.push_back(name_of(static_cast<SpanKind>(kind)));
  return {{"steps", steps},
          {"step", step},
          {"seconds", length},
          {"from", from},
          {"to", to},
          {"layout", trace.layout},
          {"ranks", ranks.size()},
          {"first", shown.empty() ? 0 : *shown.begin()},
          {"kinds", std::move(kinds)},
          {"names", std::move(names)},
          {"rows", std::move(rows)}};
}

json schedule_json(const Trace& trace, const RunPlan& plan) {
  std::map<int, int> row_of_stage, row_of_rank;  // the lowest rank of a stage stands for it
  for (std::size_t rank = 0; rank < trace.stage_of.size(); ++rank) {
    const int stage = trace.stage_of[rank];
    if (row_of_stage.contains(stage)) continue;
    row_of_stage[stage] = 0;
    row_of_rank[static_cast<int>(rank)] = stage;
  }
  if (row_of_stage.size() < 2) return nullptr;
  json rows = json::array();
  for (auto& [rank, row] : row_of_rank) {  // in the order of ranks; first the stage, then its row
    rows.push_back({{"rank", rank}, {"stage", row}});
    row = static_cast<int>(rows.size()) - 1;
  }
  const std::set<std::int64_t> steps = traced_steps(trace);
  json answer = {{"rows", rows}, {"step", steps.empty() ? -1 : *steps.rbegin()}};

  // All spans of one entry of the schedule are one box.
  std::map<std::tuple<int, int>, ScheduleSpan> boxes;
  if (!steps.empty())
    for (const TraceSpan* span : spans_of_step(trace, *steps.rbegin()).spans) {
      const auto row = row_of_rank.find(span->rank);
      if (row == row_of_rank.end() || span->position < 0 || span->kind != SpanKind::compute) continue;
      const bool backward = span->name.find("backward") != std::string::npos;
      const ScheduleSpan own{
          .row = row->second,
          .name = std::string(backward ? "B" : "F") + (span->micro >= 0 ? std::to_string(span->micro) : ""),
          .begin = span->begin,
          .end = span->end,
          .backward = backward};
      ScheduleSpan& box = boxes.try_emplace({row->second, span->position}, own).first->second;
      box.begin = std::min(box.begin, span->begin);
      box.end = std::max(box.end, span->end);
    }
  std::vector<ScheduleSpan> measured, ideal;
  double begin = 0, end = 0;
  for (const auto& [place, box] : boxes) {
    begin = measured.empty() ? box.begin : std::min(begin, box.begin);
    end = measured.empty() ? box.end : std::max(end, box.end);
    measured.push_back(box);
  }
  answer["measured"] = end > begin ? schedule_rows_json(measured, begin, end - begin) : json::array();
  answer["seconds"] = end - begin;
  answer["measured_bubble"] = measured.empty() ? json(nullptr) : json(idle_share(measured, rows.size(), end - begin));
  double ideal_end = 0;
  for (const IdealSpan& span : plan.ideal) {
    const auto row = row_of_rank.find(span.rank);
    if (row == row_of_rank.end()) continue;
    ideal.push_back({.row = row->second,
                     .name = span.name,
                     .begin = span.begin,
                     .end = span.end,
                     .backward = span.name.starts_with('B') || span.name.starts_with('W')});
    ideal_end = std::max(ideal_end, span.end);
  }
  answer["ideal"] = ideal_end > 0 ? schedule_rows_json(ideal, 0, ideal_end) : json::array();
  answer["ideal_bubble"] = plan.ideal_bubble ? json(*plan.ideal_bubble) : json(nullptr);
  return answer;
}

}  // namespace lockstep
