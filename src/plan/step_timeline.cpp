#include "plan/step_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "plan/step_messages.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

using SpanKind = TimelineSpan::Kind;

constexpr double kUnknown = -1, kTouching = 1e-9;  // seconds: spans of one action this near are one

SpanKind kind_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return SpanKind::forward;
    case ActionKind::backward_input:
      return SpanKind::backward_input;
    case ActionKind::backward_weight:
      return SpanKind::backward_weight;
    default:
      return SpanKind::update;
  }
}

SpanKind kind_of(MeshAxis axis) {
  constexpr SpanKind kKinds[] = {SpanKind::dp, SpanKind::pp, SpanKind::cp, SpanKind::tp};
  return kKinds[static_cast<int>(axis)];
}

class Simulation {
 public:
  Simulation(const StepScript& script, const LayoutSpec& layout, const StatedMachine& machine)
      : script_(script),
        layout_(layout),
        machine_(machine),
        ranks_(script.ranks.size()),
        messages_(script.messages.size()) {
    int channels = 0;
    for (const ScriptMessage& m : script.messages) channels = std::max(channels, m.channel + 1);
    channel_free_.assign(static_cast<std::size_t>(channels), 0);
  }

  std::vector<TimelineRow> rows() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r) moved |= advance(r);
    }
    double first = std::numeric_limits<double>::infinity();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      LOCKSTEP_CHECK(ranks_[r].piece == script_.ranks[r].pieces.size(), "rank {} waits for ever", r);
      first = std::min(first, ranks_[r].step_begins);
    }
    std::vector<TimelineRow> rows;
    for (std::size_t r = 0; r < ranks_.size(); ++r) rows.push_back(row(r, first));
    return rows;
  }

 private:
  struct Rank {
    std::size_t piece = 0;
    double now = 0, step_begins = 0;
    std::vector<TimelineSpan> computed;
    std::vector<int> actions;   // of what was computed
    std::vector<int> messages;  // that it started
  };
  struct Moving {
    int started = 0;
    double latest = 0, begin = 0, end = kUnknown;
  };

  // Runs a rank until it waits for something unfinished; returns whether it got any further.
  bool advance(std::size_t r) {
    Rank& rank = ranks_[r];
    const std::vector<ScriptPiece>& pieces = script_.ranks[r].pieces;
    const std::size_t before = rank.piece;
    for (; rank.piece < pieces.size(); ++rank.piece) {
      const ScriptPiece& piece = pieces[rank.piece];
      if (piece.kind == ScriptPiece::Kind::work) compute(r, piece);
      if (piece.kind == ScriptPiece::Kind::start) start(r, piece.message);
      if (piece.kind == ScriptPiece::Kind::wait) {
        const double end = messages_[static_cast<std::size_t>(piece.message)].end;
        if (end == kUnknown) break;
        rank.now = std::max(rank.now, end);
      }
      if (piece.kind == ScriptPiece::Kind::step_begins) rank.step_begins = rank.now;
    }
    return rank.piece != before;
  }

  void compute(std::size_t r, const ScriptPiece& piece) {
    Rank& rank = ranks_[r];
    const double begin = rank.now;
    rank.now += roofline_seconds(piece.work, machine_.rates);
    if (piece.action < 0) return;
    if (!rank.actions.empty() && rank.actions.back() == piece.action && begin - rank.computed.back().end < kTouching) {
      rank.computed.back().end = rank.now;
      return;
    }
    const Action& action = script_.ranks[r].step.actions[static_cast<std::size_t>(piece.action)];
    const bool phase = is_phase(action.kind);
    if (!phase && action.kind != ActionKind::norm && action.kind != ActionKind::update) return;
    rank.computed.push_back({.kind = kind_of(action.kind),
                             .begin = begin,
                             .end = rank.now,
                             .label = phase ? fmt::format("{}", action.micro) : "",
                             .tip = to_string(action)});
    rank.actions.push_back(piece.action);
  }

  void start(std::size_t r, int message) {
    ranks_[r].messages.push_back(message);
    const ScriptMessage& m = script_.messages[static_cast<std::size_t>(message)];
    Moving& moving = messages_[static_cast<std::size_t>(message)];
    moving.latest = std::max(moving.latest, ranks_[r].now);
    if (++moving.started < m.ranks) return;
    double& free = channel_free_[static_cast<std::size_t>(m.channel)];
    moving.begin = std::max(moving.latest, free);
    moving.end = free = moving.begin + machine_.latency + static_cast<double>(m.sent) / machine_.link;
  }

  TimelineRow row(std::size_t r, double first) const {
    const auto rank = static_cast<std::int64_t>(r);
    TimelineRow row{.label = fmt::format("rank {}", r),
                    .detail = fmt::format("dp {} · pp {} · cp {} · tp {}", layout_.dp_rank(rank), layout_.stage(rank),
                                          layout_.cp_rank(rank), layout_.tp_rank(rank)),
                    .spans = {}};
    for (const TimelineSpan& span : ranks_[r].computed)
      if (span.begin >= first) row.spans.push_back(span);
    for (const int message : ranks_[r].messages) {
      const ScriptMessage& m = script_.messages[static_cast<std::size_t>(message)];
      const Moving& moving = messages_[static_cast<std::size_t>(message)];
      if (m.number || moving.begin < first) continue;
      const MeshAxis axis = axis_of(m.group, layout_);
      row.spans.push_back({.kind = kind_of(axis),
                           .begin = moving.begin,
                           .end = moving.end,
                           .label = byte_text(m.sent),
                           .tip = fmt::format("{} {} of {}", name_of(axis), name_of(m.op), byte_text(m.sent))});
    }
    for (TimelineSpan& span : row.spans) span.begin -= first, span.end -= first;
    return row;
  }

  const StepScript& script_;
  const LayoutSpec& layout_;
  const StatedMachine& machine_;
  std::vector<Rank> ranks_;
  std::vector<Moving> messages_;
  std::vector<double> channel_free_;
};

}  // namespace

std::vector<TimelineRow> step_timeline(const StepScript& script, const LayoutSpec& layout,
                                       const StatedMachine& machine) {
  return Simulation(script, layout, machine).rows();
}

}  // namespace lockstep
