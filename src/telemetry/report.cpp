#include "telemetry/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/median.h"
#include "telemetry/advice.h"
#include "telemetry/mfu_band.h"
#include "telemetry/run_state.h"

namespace lockstep {

namespace {

// The values of all steps but the first, which also warms up, where they are known.
template <class Value>
std::vector<double> values_of(const RunRecords& run, const Value& value) {
  std::vector<double> values;
  for (std::size_t i = run.steps.size() > 1 ? 1 : 0; i < run.steps.size(); ++i)
    if (const double v = value(run.steps[i]); known(v)) values.push_back(v);
  return values;
}

std::optional<double> median_of(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  return median(std::move(values));
}

// The value that a twentieth is above.
std::optional<double> slowest_of(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  const auto at = values.begin() + (std::ssize(values) - 1) * 19 / 20;
  std::ranges::nth_element(values, at);
  return *at;
}

std::optional<std::int64_t> ranks_of(const RunRecords& run) {
  if (run.plan.ranks) return run.plan.ranks;
  if (run.ranks.empty()) return std::nullopt;
  return run.ranks.rbegin()->first + 1;
}

std::optional<double> known_or_nothing(double value) { return known(value) ? std::optional(value) : std::nullopt; }

std::int64_t axis(const RunRecords& run, const char* name) {
  const auto at = run.plan.axes.find(name);
  return at == run.plan.axes.end() ? 1 : at->second;
}

RunFacts facts_of_plan(const RunRecords& run) {
  const RunPlan& p = run.plan;
  return {.dp = axis(run, "dp"),
          .pp = axis(run, "pp"),
          .cp = std::max<std::int64_t>(1, axis(run, "cp")),
          .tp = axis(run, "tp"),
          .micro = p.micro.value_or(1),
          .zero = p.zero.value_or(0),
          .micro_batch = p.micro_batch.value_or(1),
          .seq = p.seq.value_or(1),
          .overlap = p.overlap.value_or(true),
          .gpu = p.device == "cuda",
          .recompute = p.recompute.value_or("none") != "none"};
}

ReportedTime time_of(const RunRecords& run) {
  ReportedTime time;
  if (!run.steps.empty() && known(run.last.time) && known(run.steps.front().time))
    time.wall_seconds = run.last.time - run.steps.front().time;
  const std::vector<double> seconds = values_of(run, [](const StepPoint& s) { return s.seconds; });
  time.step_seconds = median_of(seconds);
  time.slowest_seconds = slowest_of(seconds);
  TimesByUse sum;
  for (const StepPoint& step : run.steps) {
    if (!step.has_times()) continue;
    for (std::size_t u = 0; u < kTimeUses; ++u) sum.seconds[u] += static_cast<double>(step.mean[u]);
  }
  time.split = sum.total() > 0;
  for (std::size_t u = 0; time.split && u < kTimeUses; ++u) time.share[u] = sum.seconds[u] / sum.total();
  time.most_rank = run.detail.rank_of_most;
  const std::optional<double> mfu = run.mfu.value();
  if (mfu && run.plan.found && mfu_band(*mfu) >= MfuBand::fair) time.advice = mfu_advice(sum, facts_of_plan(run)).text;
  return time;
}

void compare_with(const RunRecords& run, const RunRecords& baseline, ReportedEfficiency& e) {
  e.baseline = baseline.folder.string();
  const auto theirs = median_of(values_of(baseline, [](const StepPoint& s) { return s.tokens_per_s; }));
  const auto ranks = ranks_of(baseline);
  if (theirs && ranks) e.baseline_rank = *theirs / static_cast<double>(*ranks);
  const auto differs = [](const auto& a, const auto& b) { return a && b && *a != *b; };
  if (differs(run.plan.parameters, baseline.plan.parameters) || differs(run.plan.seq, baseline.plan.seq))
    e.why_unknown = "the baseline trains another model, or samples of another length";
  else if (!e.tokens_per_s_rank)
    e.why_unknown = "the run has no speed yet";
  else if (!e.baseline_rank)
    e.why_unknown = "the baseline has no speed yet";
  else
    e.against_baseline = *e.tokens_per_s_rank / *e.baseline_rank;
}

ReportedEfficiency efficiency_of(const RunRecords& run, const RunRecords* baseline) {
  ReportedEfficiency e;
  e.tokens_per_s = median_of(values_of(run, [](const StepPoint& s) { return s.tokens_per_s; }));
  if (const auto ranks = ranks_of(run); ranks && e.tokens_per_s)
    e.tokens_per_s_rank = *e.tokens_per_s / static_cast<double>(*ranks);
  e.mfu = run.mfu.value();
  if (e.mfu) e.band = name_of(mfu_band(*e.mfu));
  if (e.mfu && run.plan.model_flops_a_step.value_or(0) > 0 && run.plan.model_flops_6n_a_step)
    e.mfu_6n = *e.mfu * *run.plan.model_flops_6n_a_step / *run.plan.model_flops_a_step;
  if (baseline)
    compare_with(run, *baseline, e);
  else
    e.why_unknown = "no baseline";
  return e;
}

// The bubble as recorded; else what of a step, without saves and evaluations, ranks waited along pp.
std::optional<ReportedPipeline> pipeline_of(const RunRecords& run) {
  if (axis(run, "pp") <= 1 || !run.plan.ideal_bubble || *run.plan.ideal_bubble >= 1) return std::nullopt;
  std::optional<double> bubble =
      median_of(values_of(run, [](const StepPoint& s) { return static_cast<double>(s.bubble); }));
  if (!bubble)
    bubble = median_of(values_of(run, [](const StepPoint& s) {
      const double step = s.total() * (1 - s.share(TimeUse::save) - s.share(TimeUse::evaluate));
      return s.has_times() && step > 0 ? s.share(TimeUse::wait_pp) * s.total() / step : kUnknown;
    }));
  if (!bubble) return std::nullopt;
  return ReportedPipeline{.ideal_bubble = *run.plan.ideal_bubble,
                          .bubble = *bubble,
                          .over_ideal = (1 - *bubble) / (1 - *run.plan.ideal_bubble)};
}

std::optional<PredictionScore> prediction_of_run(const RunRecords& run) {
  if (!run.plan.predicted) return std::nullopt;
  return score_prediction(*run.plan.predicted, measured_steps(run));
}

ReportedQuality quality_of(const RunRecords& run) {
  ReportedQuality q;
  for (const StepPoint& step : run.steps) {
    if (!known(step.loss)) continue;
    if (!q.first_loss) q.first_loss = step.loss;
    q.best_loss = std::min(q.best_loss.value_or(step.loss), step.loss);
  }
  q.last_loss = known_or_nothing(run.last.loss);
  if (run.evaluations.empty()) return q;
  const EvaluationPoint& last = run.evaluations.back();
  q.eval_step = last.step;
  q.eval_loss = known_or_nothing(last.loss);
  if (q.eval_loss) q.perplexity = std::exp(*q.eval_loss);
  q.accuracy = known_or_nothing(last.accuracy);
  return q;
}

std::int64_t sum_of(const BytesOfTags& tags) {
  std::int64_t sum = 0;
  for (const auto& [tag, bytes] : tags) sum += bytes;
  return sum;
}

std::vector<ReportedMemory> memory_of(const RunRecords& run) {
  std::map<int, ReportedMemory> by_rank;
  for (const PlannedMemory& planned : run.plan.memory) {
    ReportedMemory& m = by_rank[planned.rank];
    m.planned_tags = planned.by_tag;
    m.planned = planned.by_tag.empty() ? planned.peak : sum_of(planned.by_tag);
  }
  for (const auto& [rank, history] : run.ranks) by_rank[rank].measured_tags = history.peak_bytes;
  if (!run.detail.peak_bytes.empty()) by_rank[keeper_in(run)].measured_tags = run.detail.peak_bytes;
  std::vector<ReportedMemory> all;
  for (auto& [rank, memory] : by_rank) {
    memory.rank = rank;
    if (!memory.measured_tags.empty()) memory.measured = sum_of(memory.measured_tags);
    all.push_back(std::move(memory));
  }
  return all;
}

// Over the recent steps that every rank has a record of.
void find_imbalance(const RunRecords& run, ReportedStability& stability) {
  if (run.ranks.size() < 2) return;
  std::map<std::int64_t, std::size_t> known_by;  // ranks, by step
  for (const auto& [rank, history] : run.ranks)
    for (const RankPoint& step : history.steps) ++known_by[step.step];
  std::map<int, double> busy;
  for (const auto& [rank, history] : run.ranks)
    for (const RankPoint& step : history.steps)
      if (known_by[step.step] == run.ranks.size()) busy[rank] += step.busy();
  double sum = 0, most = 0;
  for (const auto& [rank, seconds] : busy) {
    sum += seconds;
    if (seconds > most) most = seconds, stability.busiest_rank = rank;
  }
  if (sum > 0) stability.imbalance = most * static_cast<double>(busy.size()) / sum - 1;
}

ReportedStability stability_of(const RunRecords& run) {
  constexpr std::size_t kMostTexts = 5;
  ReportedStability s;
  s.skipped = run.not_updated + run.overflows;
  s.overflows = run.overflows;
  for (const StepPoint& step : run.steps) s.spikes += static_cast<double>(step.loss_z) > kSpike;
  s.events = !run.events.empty() || !run.step_events.empty();
  std::int64_t starts = 0;
  for (const RunEvent& event : run.events) {
    s.stalls += event.kind == "stall";
    starts += event.kind == "start" && (event.rank < 0 || event.is_of_keeper());  // every rank tells of its own
    if (event.kind != "fault") continue;
    ++s.faults;
    s.fault_texts.push_back(event.text);
    if (s.fault_texts.size() > kMostTexts) s.fault_texts.erase(s.fault_texts.begin());
  }
  s.restarts = std::max<std::int64_t>(0, starts - 1);
  s.workers = worker_record_in(run);
  find_imbalance(run, s);
  return s;
}

}  // namespace

std::vector<MeasuredStep> measured_steps(const RunRecords& run) {
  std::vector<MeasuredStep> steps;
  for (const StepPoint& step : run.steps) {
    if (!known(step.seconds)) continue;
    MeasuredStep& one = steps.emplace_back(MeasuredStep{.seconds = step.seconds});
    if (const auto bubble = static_cast<double>(step.bubble); known(bubble)) one.bubble = bubble;
    if (!step.has_times()) continue;
    one.waited.emplace();
    for (std::size_t a = 0; a < kWaitAxes; ++a)
      (*one.waited)[a] = static_cast<double>(step.mean[static_cast<std::size_t>(TimeUse::wait_dp) + a]);
  }
  return steps;
}

Report make_report(const RunRecords& run, const RunRecords* baseline) {
  return {.folder = run.folder.string(),
          .layout = run.plan.layout.value_or(""),
          .device = run.plan.device.value_or(""),
          .precision = run.plan.precision.value_or(""),
          .ranks = ranks_of(run),
          .parameters = run.plan.parameters,
          .planned_steps = run.plan.steps,
          .last_step = std::max<std::int64_t>(0, run.last.step),
          .running = run.running,
          .time = time_of(run),
          .efficiency = efficiency_of(run, baseline),
          .pipeline = pipeline_of(run),
          .prediction = prediction_of_run(run),
          .quality = quality_of(run),
          .memory = memory_of(run),
          .stability = stability_of(run),
          .goodput = run.goodput.value(run.read_at, launch_at_work(run) || run.running.value_or(false))};
}

}  // namespace lockstep
