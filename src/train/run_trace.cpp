#include "train/run_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "spec/pipeline/stage_step.h"
#include "train/host_values.h"

namespace lockstep {

namespace {

constexpr double kShortestWait = 1e-6;  // seconds; below it nothing was waited for
constexpr int kExchanges = 8;

// Spans of one rank as text, for another that reads it at once.
std::string packed(const std::vector<TraceSpan>& spans) {
  nlohmann::json all = nlohmann::json::array();
  for (const TraceSpan& s : spans)
    all.push_back({s.name, static_cast<int>(s.kind), s.rank, s.step, s.position, s.begin, s.end, s.micro});
  return all.dump();
}

void unpack(const std::string& text, std::vector<TraceSpan>& spans) {
  for (const auto& s : nlohmann::json::parse(text))
    spans.push_back({.name = s[0],
                     .kind = static_cast<SpanKind>(s[1].get<int>()),
                     .rank = s[2],
                     .step = s[3],
                     .position = s[4],
                     .begin = s[5],
                     .end = s[6],
                     .micro = s[7]});
}

// "block.3 backward input", "norm".
std::string name_of(const Action& action, const Model& model) {
  std::string what(name_of(action.kind));
  std::ranges::replace(what, '_', ' ');
  return action.unit < 0 ? what : fmt::format("{} {}", model.unit(action.unit).layout().name(), what);
}

}  // namespace

double clock_offset(Communicator& ranks, const std::function<double()>& now) {
  double offset = 0;
  const auto send = [&](double value, int to) {
    ranks.send(ConstTensor(&value, DType::f64, ranks.device(), {1}), to)->wait();
  };
  const auto receive = [&](int from) {
    double value = 0;
    ranks.recv(Tensor(&value, DType::f64, ranks.device(), {1}), from)->wait();
    return value;
  };
  // One after the other, so that nobody waits for another's exchange.
  for (int other = 1; other < ranks.size(); ++other) {
    double quickest = std::numeric_limits<double>::infinity(), best = 0;
    for (int i = 0; i < kExchanges; ++i) {
      if (ranks.rank() == other) {
        receive(0);
        send(now(), 0);
      } else if (ranks.rank() == 0) {
        const double before = now();
        send(before, other);
        const double theirs = receive(other), after = now();
        if (after - before < quickest) quickest = after - before, best = (before + after) / 2 - theirs;
      }
    }
    if (ranks.rank() == 0) send(best, other);
    if (ranks.rank() == other) offset = receive(0);
  }
  return offset;
}

RunTrace::~RunTrace() {
  if (watching_ && replica_.steps_in_flight() == 0) replica_.show(nullptr);
}

void RunTrace::before(std::int64_t step, bool first) {
  if (options_.steps == 0 || collected_ || first || replica_.steps_in_flight() > 0) return;
  if (!watching_) {
    const RankStep& own = replica_.rank_step();
    positions_ = positions_of(own.actions, own.schedule, own.shape);
    watching_ = true;
    replica_.show(this);
  }
  step_ = step + 1;
  ++watched_;
}

void RunTrace::comes_to(std::size_t index) {
  position_ = positions_[index];
  came_ = now();
}

void RunTrace::runs(const Action& action) {
  ran_ = now();
  if (ran_ - came_ < kShortestWait) return;
  spans_.push_back({.name = "wait for " + name_of(action, replica_.model()),
                    .kind = SpanKind::wait,
                    .rank = options_.ranks ? options_.ranks->rank() : 0,
                    .step = step_,
                    .position = -1,
                    .begin = came_,
                    .end = ran_,
                    .micro = action.micro});
}

void RunTrace::is_done_with(const Action& action) {
  spans_.push_back({.name = name_of(action, replica_.model()),
                    .kind = SpanKind::compute,
                    .rank = options_.ranks ? options_.ranks->rank() : 0,
                    .step = step_,
                    .position = position_,
                    .begin = ran_,
                    .end = now(),
                    .micro = action.micro});
}

std::optional<Trace> RunTrace::collect() {
  if (!watching_) return std::nullopt;
  replica_.show(nullptr);
  watching_ = false;
  collected_ = true;
  const RankStep& own = replica_.rank_step();
  Trace trace{.layout = options_.layout, .schedule = to_text(own.schedule), .stage_of = {0}, .spans = {}};
  if (!options_.ranks) {
    trace.spans = std::move(spans_);
    return trace;
  }
  Communicator& ranks = *options_.ranks;
  const double offset = clock_offset(ranks, [this] { return now(); });
  for (TraceSpan& span : spans_) span.begin += offset, span.end += offset;
  std::vector<std::int64_t> stages(static_cast<std::size_t>(ranks.size()));
  const std::int64_t stage = own.shape.stage;
  ranks
      .all_gather(Tensor(stages.data(), DType::i64, ranks.device(), {ranks.size()}),
                  ConstTensor(&stage, DType::i64, ranks.device(), {1}))
      ->wait();
  trace.stage_of.assign(stages.begin(), stages.end());
  for (int rank = 0; rank < ranks.size(); ++rank) {
    std::string text = rank == ranks.rank() ? packed(spans_) : "";
    share_text(ranks, text, rank);
    if (ranks.rank() == 0) unpack(text, trace.spans);
  }
  spans_.clear();
  return ranks.rank() == 0 ? std::optional(std::move(trace)) : std::nullopt;
}

}  // namespace lockstep
