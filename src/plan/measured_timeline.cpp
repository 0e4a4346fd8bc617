#include "plan/measured_timeline.h"

#include <algorithm>
#include <tuple>

#include "base/median.h"

namespace lockstep {

namespace {

constexpr double kClockGrain = 1e-6;  // seconds: by less than that two spans may overlap

[[noreturn]] void refuse(const std::string& where, const std::string& problem, const std::string& remedy) {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", where, problem), remedy);
}
constexpr const char* kRecordAgain = "record it again";

// Lines with something beside a comment, each of them a stage.
int stages_in(std::string_view text) {
  int stages = 0;
  for (bool begun = false, comment = false; const char c : text) {
    if (c == '\n')
      begun = comment = false;
    else if (c == '#')
      comment = true;
    else if (!begun && !comment && c != ' ' && c != '\t' && c != '\r')
      begun = true, ++stages;
  }
  return stages;
}

// The lowest rank of each stage.
std::vector<int> speakers(const Trace& trace, int stages, const std::string& where) {
  std::vector<int> ranks(static_cast<std::size_t>(stages), -1);
  for (std::size_t r = 0; r < trace.stage_of.size(); ++r) {
    if (trace.stage_of[r] >= stages)
      refuse(where, fmt::format("rank {} is on stage {}, and the schedule has {}", r, trace.stage_of[r], stages),
             kRecordAgain);
    int& rank = ranks[static_cast<std::size_t>(trace.stage_of[r])];
    if (rank < 0) rank = static_cast<int>(r);
  }
  if (const auto at = std::ranges::find(ranks, -1); at != ranks.end())
    refuse(where, fmt::format("no rank is on stage {}", at - ranks.begin()), kRecordAgain);
  return ranks;
}

// One span that counts, sorted into its place.
struct Piece {
  std::int64_t step;
  int stage, position;
  double begin, end;
  auto key() const { return std::tuple(step, stage, position, begin, end); }
};
using Pieces = std::vector<Piece>;
using Steps = std::vector<std::pair<Pieces::const_iterator, Pieces::const_iterator>>;

Pieces pieces_of(const Trace& trace, const MeasuredTimeline& m, const std::string& where) {
  Pieces pieces;
  for (const TraceSpan& span : trace.spans) {
    if (span.kind != SpanKind::compute || span.position < 0) continue;
    const int stage = trace.stage_of.at(static_cast<std::size_t>(span.rank));
    const std::size_t steps = m.schedule.stages[static_cast<std::size_t>(stage)].size();
    if (static_cast<std::size_t>(span.position) >= steps)
      refuse(where, fmt::format("a span has position {} of stage {}, which has {}", span.position, stage, steps),
             kRecordAgain);
    if (span.rank == m.ranks[static_cast<std::size_t>(stage)])
      pieces.push_back({span.step, stage, span.position, span.begin, span.end});
  }
  std::ranges::sort(pieces, {}, &Piece::key);
  return pieces;
}

// The steps of the schedule that have nothing to do: where the last chunk is the head alone, its forward has done the
// backward, and no span is of it in any step of training.
std::size_t empty_steps(const Pieces& pieces, const PipelineSchedule& schedule) {
  const int head = static_cast<int>(schedule.stage_of.size()) - 1, stage = schedule.stage_of.back();
  const auto& steps = schedule.stages[static_cast<std::size_t>(stage)];
  const auto is_backward = [&](const ChunkAction& a) { return a.chunk == head && a.step != ChunkStep::forward; };
  const bool any = std::ranges::any_of(pieces, [&](const Piece& piece) {
    return piece.stage == stage && is_backward(steps[static_cast<std::size_t>(piece.position)]);
  });
  return any ? 0 : static_cast<std::size_t>(std::ranges::count_if(steps, is_backward));
}

// The steps of training of which every step of the schedule is there that has something to do.
Steps complete_steps(const Pieces& pieces, const PipelineSchedule& schedule) {
  std::size_t wanted = 0;
  for (const auto& stage : schedule.stages) wanted += stage.size();
  wanted -= empty_steps(pieces, schedule);
  Steps steps;
  for (auto begin = pieces.begin(); begin != pieces.end();) {
    std::size_t found = 0;
    auto end = begin;
    for (; end != pieces.end() && end->step == begin->step; ++end)
      found += end == begin || end->stage != std::prev(end)->stage || end->position != std::prev(end)->position;
    if (found == wanted) steps.emplace_back(begin, end);
    begin = end;
  }
  return steps;
}

Steps::value_type chosen(const Steps& steps, std::optional<std::int64_t> step, const std::string& where) {
  if (steps.empty())
    refuse(where, "has no step of training in which every stage did all of its schedule", "record a whole step");
  if (!step) return steps.back();
  const auto at = std::ranges::find(steps, *step, [](const auto& range) { return range.first->step; });
  if (at == steps.end())
    throw UserError(
        ExitCode::usage, fmt::format("{}: it has no complete step {}", where, *step),
        fmt::format("it has {}, from {} to {}", steps.size(), steps.front().first->step, steps.back().first->step));
  return *at;
}

}  // namespace

PipelineSchedule parse_drawn_schedule(std::string_view text, const std::string& where, ExitCode code) {
  const auto refuse_size = [&](const std::string& most) {
    throw UserError(code, fmt::format("{}: the schedule has more than {}", where, most), "give a smaller one");
  };
  // The proof that no stage waits for ever takes time in stages and steps both.
  if (stages_in(text) > kMostStages) refuse_size(fmt::format("{} stages", kMostStages));
  if (text.size() > kMostScheduleText) refuse_size(fmt::format("{} bytes", kMostScheduleText));
  try {
    PipelineSchedule schedule = parse_schedule(text, where);
    const PipelineShape& s = schedule.shape;
    if (std::int64_t{s.stages} * s.chunks * s.micro > kMostDrawn)
      refuse_size(fmt::format("{} micro-batches of all chunks", kMostDrawn));
    return schedule;
  } catch (const UserError& error) {  // parse_schedule takes every text for one of the command line
    throw UserError(code, error.what(), "");
  }
}

double MeasuredTimeline::bubble() const {
  const double all = line.makespan() * static_cast<double>(line.stages.size());
  double sum = 0;
  for (const auto& stage : busy)
    for (const double time : stage) sum += time;
  return all > 0 ? (all - sum) / all : 0;
}

double MeasuredTimeline::own_bubble(int stage) const {
  const auto s = static_cast<std::size_t>(stage);
  const std::vector<ChunkSpan>& spans = line.stages.at(s);
  if (spans.empty()) return 0;
  const double all = spans.back().end - spans.front().begin;
  double sum = 0;
  for (const double time : busy.at(s)) sum += time;
  return all > 0 ? (all - sum) / all : 0;
}

MeasuredTimeline measured_timeline(const Trace& trace, std::optional<std::int64_t> step, const std::string& where) {
  if (trace.schedule.empty() || trace.stage_of.empty())
    refuse(where, "holds no schedule of a pipeline", "record a run whose layout has pp > 1");
  return measured_timeline(parse_drawn_schedule(trace.schedule, where + ": its schedule", ExitCode::bad_input_file),
                           trace, step, where);
}

MeasuredTimeline measured_timeline(PipelineSchedule schedule, const Trace& trace, std::optional<std::int64_t> step,
                                   const std::string& where) {
  MeasuredTimeline m;
  m.schedule = std::move(schedule);
  const std::size_t stages = m.schedule.stages.size();
  m.ranks = speakers(trace, static_cast<int>(stages), where);
  const Pieces pieces = pieces_of(trace, m, where);
  const auto [first, last] = chosen(complete_steps(pieces, m.schedule), step, where);
  m.step = first->step;
  double zero = first->begin;
  for (auto piece = first; piece != last; ++piece) zero = std::min(zero, piece->begin);
  m.line.stages.resize(stages);
  m.busy.resize(stages);
  // What has nothing to do takes no time.
  const auto pass_to = [&](std::size_t s, std::size_t at, double time) {
    for (std::vector<ChunkSpan>& spans = m.line.stages[s]; spans.size() < at; m.busy[s].push_back(0))
      spans.push_back({m.schedule.stages[s][spans.size()], time, time});
  };
  for (auto piece = first; piece != last; ++piece) {
    const auto s = static_cast<std::size_t>(piece->stage), at = static_cast<std::size_t>(piece->position);
    std::vector<ChunkSpan>& spans = m.line.stages[s];
    pass_to(s, at, spans.empty() ? piece->begin - zero : spans.back().end);
    if (!spans.empty() && piece->begin - zero < spans.back().end - kClockGrain)
      refuse(where, fmt::format("step {} of stage {} begins before what comes before it ends", at, s), kRecordAgain);
    if (spans.size() == at) {
      spans.push_back({m.schedule.stages[s][at], piece->begin - zero, piece->end - zero});
      m.busy[s].push_back(0);
    }
    spans.back().end = std::max(spans.back().end, piece->end - zero);
    m.busy[s].back() += piece->end - piece->begin;
  }
  for (std::size_t s = 0; s < stages; ++s)
    pass_to(s, m.schedule.stages[s].size(), m.line.stages[s].empty() ? 0 : m.line.stages[s].back().end);
  return m;
}

PipelineTimeline ideal_timeline(const MeasuredTimeline& measured, double message) {
  std::vector<std::vector<double>> took(measured.schedule.stage_of.size() * 4);
  for (std::size_t s = 0; s < measured.line.stages.size(); ++s)
    for (std::size_t i = 0; i < measured.line.stages[s].size(); ++i) {
      const ChunkAction& a = measured.line.stages[s][i].action;
      took[static_cast<std::size_t>(a.chunk) * 4 + static_cast<std::size_t>(a.step)].push_back(measured.busy[s][i]);
    }
  return timed(measured.schedule, [&](int chunk) {
    const auto of = [&](ChunkStep step) {
      return median(took[static_cast<std::size_t>(chunk) * 4 + static_cast<std::size_t>(step)]);
    };
    // Of whole backwards only the sum counts. A schedule by hand may have both: its halves speak for the whole then.
    const double input = of(ChunkStep::backward_input), weight = of(ChunkStep::backward_weight);
    const bool halves = input + weight > 0;
    return ChunkTimes{.forward = of(ChunkStep::forward),
                      .input = halves ? input : of(ChunkStep::backward),
                      .weight = weight,
                      .message = message};
  });
}

}  // namespace lockstep
