#include "train/run_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spec/layout/mesh_axis.h"
#include "spec/pipeline/stage_step.h"
#include "train/host_values.h"

namespace lockstep {

namespace {

constexpr double kShortestWait = 1e-6;  // seconds; below it nothing was waited for

// What one rank saw as text, for another that reads it at once.
std::string packed(const std::vector<TraceSpan>& spans, const std::vector<MessageOfRank>& messages,
                   const std::vector<TraceMemory>& memory, std::optional<double> clock_error) {
  nlohmann::json all{{"spans", nlohmann::json::array()},
                     {"messages", nlohmann::json::array()},
                     {"memory", nlohmann::json::array()},
                     {"error", clock_error ? nlohmann::json(*clock_error) : nlohmann::json()}};
  for (const TraceSpan& s : spans)
    all["spans"].push_back({s.name, static_cast<int>(s.kind), s.rank, s.step, s.position, s.begin, s.end, s.micro});
  for (const auto& [rank, m, under_way] : messages)
    all["messages"].push_back({rank, m.group, m.key, static_cast<int>(m.op), m.number, m.ranks, m.peer, m.bytes, m.step,
                               m.begin, m.end, under_way});
  for (const TraceMemory& m : memory) all["memory"].push_back({m.rank, m.time, m.bytes});
  return all.dump();
}

void unpack(const std::string& text, Trace& trace, std::vector<MessageOfRank>& messages) {
  const auto all = nlohmann::json::parse(text);
  for (const auto& m : all["messages"])
    messages.push_back({.rank = m[0],
                        .message = {.group = m[1],
                                    .key = m[2],
                                    .op = static_cast<CommOp>(m[3].get<int>()),
                                    .number = m[4],
                                    .ranks = m[5],
                                    .peer = m[6],
                                    .bytes = m[7],
                                    .step = m[8],
                                    .begin = m[9],
                                    .end = m[10]},
                        .under_way = m[11]});
  for (const auto& m : all["memory"]) trace.memory.push_back({.rank = m[0], .time = m[1], .bytes = m[2]});
  if (all["error"].is_number()) trace.clock_error = std::max(trace.clock_error.value_or(0), all["error"].get<double>());
  for (const auto& s : all["spans"])
    trace.spans.push_back({.name = s[0],
                           .kind = static_cast<SpanKind>(s[1].get<int>()),
                           .rank = s[2],
                           .step = s[3],
                           .position = s[4],
                           .begin = s[5],
                           .end = s[6],
                           .micro = s[7]});
}

void show_messages(Trace& trace, const std::vector<MessageOfRank>& messages, const LayoutSpec& layout) {
  trace.arrows = arrows_between(messages);
  for (const auto& [rank, m, under_way] : messages)
    trace.messages.push_back({.name = fmt::format("{}{}", name_of(m.op), under_way ? " (under way)" : ""),
                              .axis = static_cast<int>(axis_of(m.group, layout)),
                              .rank = rank,
                              .step = m.step,
                              .begin = m.begin,
                              .end = m.end,
                              .bytes = m.bytes,
                              .group = m.group});
}

// "block.3 backward input", "norm".
std::string name_of(const Action& action, const Model& model) {
  std::string what(name_of(action.kind));
  std::ranges::replace(what, '_', ' ');
  return action.unit < 0 ? what : fmt::format("{} {}", model.unit(action.unit).layout().name(), what);
}

}  // namespace

RunTrace::~RunTrace() {
  if (watching_ && replica_.steps_in_flight() == 0) replica_.show(nullptr);
}

bool RunTrace::begins(bool first) const {
  return options_.steps > 0 && !watching_ && !collected_ && !first && replica_.steps_in_flight() == 0;
}

void RunTrace::before(std::int64_t step, bool first) {
  if (!begins(first) && !(watching_ && replica_.steps_in_flight() == 0)) return;
  if (!watching_) {
    const RankStep& own = replica_.rank_step();
    positions_ = positions_of(own.actions, own.schedule, own.shape);
    watching_ = true;
    replica_.show(this);
    if (options_.stream) anchor();
    if (options_.messages)
      options_.messages->start(options_.stream ? std::function([this] { return mark(); }) : std::function<double()>());
  }
  if (options_.stream) first_marks_.push_back(static_cast<std::size_t>(mark()));
  step_ = step + 1;
  ++watched_;
  if (options_.messages) options_.messages->set_step(step_);
  note_memory();
}

// One more only where something has changed.
void RunTrace::note_memory() {
  if (!options_.ledger) return;
  TraceMemory now{.rank = rank(), .time = steady_now(), .bytes = {}};
  for (int t = 0; t < kTags; ++t) {
    const Tag tag = static_cast<Tag>(t);
    if (options_.ledger->peak(tag) > 0) now.bytes.emplace_back(name_of(tag), options_.ledger->current(tag));
  }
  if (memory_.empty() || memory_.back().bytes != now.bytes) memory_.push_back(std::move(now));
}

void RunTrace::comes_to(std::size_t index) {
  position_ = positions_[index];
  came_ = mark();
}

void RunTrace::runs(const Action& action) {
  ran_ = mark();
  spans_.push_back({.name = "wait for " + name_of(action, replica_.model()),
                    .kind = SpanKind::wait,
                    .rank = rank(),
                    .step = step_,
                    .position = -1,
                    .begin = came_,
                    .end = ran_,
                    .micro = action.micro});
}

void RunTrace::is_done_with(const Action& action) {
  spans_.push_back({.name = name_of(action, replica_.model()),
                    .kind = SpanKind::compute,
                    .rank = rank(),
                    .step = step_,
                    .position = position_,
                    .begin = ran_,
                    .end = mark(),
                    .micro = action.micro});
  note_memory();
}

double RunTrace::mark() {
  if (!options_.stream) return steady_now();
  marks_.push_back(options_.stream->make_timed_event());
  options_.stream->record(*marks_.back());
  return static_cast<double>(marks_.size() - 1);
}

// An idle stream comes to an event between two readings of the host's clock.
void RunTrace::anchor() {
  options_.stream->synchronize();
  const double before = steady_now();
  mark();
  marks_.front()->wait();
  const double after = steady_now();
  anchored_ = (before + after) / 2;
  anchor_error_ = (after - before) / 2;
}

// Each mark from the first one of its step, and each step from the one before: what a device measures between two
// events has few digits.
void RunTrace::read_marks(std::vector<MessageOfRank>& messages) {
  if (!options_.stream) return;
  options_.stream->synchronize();
  std::vector<double> times{anchored_};
  std::size_t from = 0, step = 0;
  for (std::size_t i = 1; i < marks_.size(); ++i) {
    times.push_back(times[from] + options_.stream->seconds_between(*marks_[from], *marks_[i]));
    if (step < first_marks_.size() && first_marks_[step] == i) from = i, ++step;
  }
  const auto read = [&](double& time) { time = times[static_cast<std::size_t>(time)]; };
  for (TraceSpan& span : spans_) read(span.begin), read(span.end);
  for (auto& [rank, message, under_way] : messages) {
    if (!message.marked) continue;
    read(message.begin);
    if (!under_way) read(message.end);
  }
  marks_.clear();
}

// All that this rank saw, on the run's clock.
std::vector<MessageOfRank> RunTrace::put_on_clock() {
  std::vector<MessageOfRank> messages;
  if (options_.messages)
    for (const TracedMessage& message : options_.messages->finish())
      messages.push_back({rank(), message, message.end < 0});
  read_marks(messages);
  for (MessageOfRank& one : messages)
    if (one.under_way) one.message.end = steady_now();
  std::erase_if(spans_, [](const TraceSpan& span) {
    return span.kind == SpanKind::wait && span.end - span.begin < kShortestWait;
  });
  if (!options_.clock) return messages;
  const auto put = [&](double& time) { time = options_.clock->of(time); };
  for (TraceSpan& span : spans_) put(span.begin), put(span.end);
  for (TraceMemory& memory : memory_) put(memory.time);
  for (MessageOfRank& one : messages) put(one.message.begin), put(one.message.end);
  return messages;
}

std::optional<Trace> RunTrace::collect() {
  if (!watching_) return std::nullopt;
  replica_.show(nullptr);
  watching_ = false;
  collected_ = true;
  note_memory();
  const RankStep& own = replica_.rank_step();
  Trace trace{.layout = to_text(options_.layout), .schedule = to_text(own.schedule), .stage_of = {0}, .spans = {}};
  const std::vector<MessageOfRank> mine = put_on_clock();
  if (!options_.ranks) {
    trace.spans = std::move(spans_);
    trace.memory = std::move(memory_);
    return trace;
  }
  Communicator& ranks = *options_.ranks;
  std::vector<std::int64_t> stages(static_cast<std::size_t>(ranks.size()));
  const std::int64_t stage = own.shape.stage;
  ranks
      .all_gather(Tensor(stages.data(), DType::i64, ranks.device(), {ranks.size()}),
                  ConstTensor(&stage, DType::i64, ranks.device(), {1}))
      ->wait();
  trace.stage_of.assign(stages.begin(), stages.end());
  std::optional<double> error = options_.clock ? options_.clock->error(options_.clock->now()) : std::nullopt;
  if (error) *error += anchor_error_;
  std::vector<MessageOfRank> messages;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    std::string text = rank == ranks.rank() ? packed(spans_, mine, memory_, error) : "";
    share_text(ranks, text, rank);
    if (ranks.rank() == 0) unpack(text, trace, messages);
  }
  spans_.clear();
  if (ranks.rank() != 0) return std::nullopt;
  show_messages(trace, messages, options_.layout);
  return trace;
}

}  // namespace lockstep
