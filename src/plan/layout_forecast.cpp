#include "plan/layout_forecast.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "plan/measured_timeline.h"
#include "spec/layout/mesh_axis.h"
#include "spec/pipeline/stage_step.h"

namespace lockstep {

namespace {

using Kind = ScriptPiece::Kind;

// Nobody is woken for a message of fewer bytes (comm/threads/rendezvous.cpp): its seconds are in the latency.
constexpr std::int64_t kSmallBytes = 1 << 16;

ForecastMessage forecast_message(const ScriptMessage& m, const MessageRates& rates) {
  const double rate = reduces(m.op) ? rates.summed : rates.copied;
  return {.ranks = m.ranks,
          .channel = m.channel,
          .seconds = m.bytes > kSmallBytes ? static_cast<double>(m.bytes) / rate : 0,
          .latency = rates.latency,
          .one_way = point_to_point(m.op)};
}

// How long a rank's link carries what it starts: as SimulatedLink has it (comm/delayed.h).
double link_seconds(const ScriptPiece& piece, const ForecastMachine& machine) {
  if (!machine.link) return 0;
  return machine.link->latency_seconds * static_cast<double>(piece.steps) +
         static_cast<double>(piece.bytes) / machine.link->bytes_per_second;
}

// Kernels of compression alone, whose seconds a calibration has measured by the byte.
class CodingPrices final : public meta::KernelPricer {
 public:
  explicit CodingPrices(double seconds_of_byte) : seconds_of_byte_(seconds_of_byte) {}
  double seconds(const meta::Kernel& kernel) const override {
    return kernel.compresses() ? static_cast<double>(kernel.read + kernel.written) * seconds_of_byte_ : 0;
  }

 private:
  double seconds_of_byte_;
};

// What compresses has seconds of its own, and no part in the roofline.
double piece_seconds(const ScriptPiece& piece, const RankScript& rank, const Calibration& c) {
  const double coded = c.coding > 0 ? piece.work.seconds / c.coding : 0;  // bytes
  const double others = std::max(0.0, roofline_seconds(piece.work, c.machine) - coded / c.machine.bytes);
  const double slowness =
      piece.action < 0 ? c.actions.mean
                       : c.actions.of(rank.step.actions[static_cast<std::size_t>(piece.action)], rank.step.shape);
  return others * slowness + piece.work.seconds;
}

bool is_mark(Kind kind) { return kind != Kind::work && kind != Kind::start && kind != Kind::wait; }

// The last of a rank's steps.
struct LastStep {
  double begin = 0, end = 0, waited = 0;
  std::array<double, 4> by_axis{};
  StepSpans::Step spans;
};

LastStep last_step(const RankScript& rank, const ForecastRank& seen) {
  LastStep last;
  double waited_before = 0, waited = 0, runs = 0;
  std::array<double, 4> axis_before{}, axis{};
  auto mark = seen.marks.begin();
  for (const ScriptPiece& piece : rank.pieces) {
    if (!is_mark(piece.kind)) continue;
    if (piece.kind == Kind::step_begins) last.spans.clear();
    if (piece.kind == Kind::action_runs) runs = mark->at;
    if (piece.kind == Kind::action_done)
      last.spans.push_back({.action = static_cast<std::size_t>(piece.action), .begin = runs, .end = mark->at});
    if (piece.kind == Kind::step_ends) {
      last.begin = std::exchange(last.end, mark->at);
      waited_before = std::exchange(waited, mark->waited);
      axis_before = std::exchange(axis, mark->by_axis);
    }
    ++mark;
  }
  last.waited = waited - waited_before;
  for (std::size_t a = 0; a < axis.size(); ++a) last.by_axis[a] = axis[a] - axis_before[a];
  return last;
}

}  // namespace

namespace {

// `seconds`: of a piece of work of a rank. `beside`: of a rank's step, beside its actions.
ForecastWorld world_of(const StepScript& script, const MessageRates& messages, const ForecastMachine& machine,
                       const std::function<double(const ScriptPiece&, const RankScript&)>& seconds,
                       const std::function<double(const RankScript&)>& beside) {
  ForecastWorld world{.ranks = {}, .cores = machine.cores, .threads = machine.threads};
  for (const ScriptMessage& m : script.messages) world.messages.push_back(forecast_message(m, messages));
  for (const RankScript& rank : script.ranks) {
    std::vector<ForecastPiece>& pieces = world.ranks.emplace_back();
    for (const ScriptPiece& piece : rank.pieces) {
      if (piece.kind == Kind::work)
        pieces.push_back({.kind = ForecastPiece::Kind::compute, .seconds = seconds(piece, rank)});
      else if (piece.kind == Kind::start || piece.kind == Kind::wait)
        pieces.push_back({.kind = piece.kind == Kind::start ? ForecastPiece::Kind::start : ForecastPiece::Kind::wait,
                          .message = piece.message,
                          .link = link_seconds(piece, machine)});
      else
        pieces.push_back({.kind = ForecastPiece::Kind::mark});
      if (piece.kind == Kind::step_begins)
        pieces.push_back({.kind = ForecastPiece::Kind::compute, .seconds = beside(rank)});
    }
  }
  return world;
}

LayoutForecast forecast_of(const StepScript& script, const ForecastWorld& world) {
  const std::vector<ForecastRank> seen = forecast(world);
  LayoutForecast result;
  std::vector<LastStep> steps;
  const auto ranks = static_cast<double>(seen.size());
  for (std::size_t r = 0; r < seen.size(); ++r) {
    const LastStep& last = steps.emplace_back(last_step(script.ranks[r], seen[r]));
    result.step_seconds += (last.end - last.begin) / ranks;
    result.exposed_seconds += last.waited / ranks;
    for (std::size_t a = 0; a < last.by_axis.size(); ++a) result.exposed[a] += last.by_axis[a] / ranks;
  }
  std::vector<WatchedRank> watched;
  for (std::size_t r = 0; r < steps.size(); ++r) watched.push_back({script.ranks[r].step, steps[r].spans});
  result.bubble = pipeline_bubble(watched);
  return result;
}

}  // namespace

ForecastWorld forecast_world(const StepScript& script, const Calibration& calibration, const ForecastMachine& machine) {
  return world_of(
      script, calibration.messages, machine,
      [&](const ScriptPiece& piece, const RankScript& rank) { return piece_seconds(piece, rank, calibration); },
      [&](const RankScript& rank) { return calibration.actions.beside * static_cast<double>(rank.samples); });
}

LayoutForecast forecast_layout(const StepScript& script, const Calibration& calibration,
                               const ForecastMachine& machine) {
  LayoutForecast result = forecast_of(script, forecast_world(script, calibration, machine));
  result.from = calibration;
  return result;
}

LayoutForecast forecast_run(const RunSpec& spec, const RunData& data, const Calibration& calibration,
                            const ForecastMachine& machine) {
  const CodingPrices prices(calibration.coding);
  const auto of = [&](StepKind kind) {
    return forecast_layout(step_script(spec, data, &prices, kind), calibration, machine);
  };
  LayoutForecast mean = of(StepKind::usual);
  if (!spec.sync.takes_local_steps()) return mean;
  const LayoutForecast one = of(StepKind::synchronizing);
  const LocalStepTimes times{.every = spec.sync.every, .local = mean.step_seconds, .synchronizing = one.step_seconds};
  mean.local = times;
  mean.step_seconds = times.mean();
  mean.exposed_seconds = times.over(mean.exposed_seconds, one.exposed_seconds);
  for (std::size_t a = 0; a < mean.exposed.size(); ++a) mean.exposed[a] = times.over(mean.exposed[a], one.exposed[a]);
  return mean;
}

LayoutForecast forecast_priced(const StepScript& script, const LayoutSpec& layout, const MessageRates& messages,
                               const ForecastMachine& machine, double beside) {
  ForecastWorld world = world_of(
      script, messages, machine, [](const ScriptPiece& piece, const RankScript&) { return piece.work.seconds; },
      [&](const RankScript&) { return beside; });
  for (std::size_t m = 0; m < world.messages.size(); ++m)
    world.messages[m].axis = static_cast<int>(axis_of(script.messages[m].group, layout));
  return forecast_of(script, world);
}

std::optional<double> pipeline_bubble(const std::vector<WatchedRank>& ranks) {
  const PipelineSchedule& schedule = ranks.front().step.schedule;
  if (schedule.shape.stages <= 1) return std::nullopt;
  Trace trace;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto& [step, spans] = ranks[r];
    const std::vector<int> positions = positions_of(step.actions, schedule, step.shape);
    trace.stage_of.push_back(step.shape.stage);
    const auto add = [&](int position, double from, double to) {
      trace.spans.push_back({.name = {}, .rank = static_cast<int>(r), .position = position, .begin = from, .end = to});
    };
    // A step of the schedule may have nothing to do: the backward of a chunk that is the head alone, whose forward did
    // it.
    int done = -1;
    double end = spans.front().begin;  // of the last that was part of it
    for (const StepSpans::Span& span : spans) {
      const int position = positions[span.action];
      while (done < position - 1) add(++done, span.begin, span.begin);
      done = std::max(done, position);
      add(position, span.begin, span.end);
      if (position >= 0) end = span.end;
    }
    const int all = static_cast<int>(schedule.stages[static_cast<std::size_t>(step.shape.stage)].size());
    while (done < all - 1) add(++done, end, end);
  }
  return measured_timeline(schedule, trace, std::nullopt, "the step").bubble();
}

}  // namespace lockstep
