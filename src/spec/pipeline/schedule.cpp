#include "spec/pipeline/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/integers.h"

namespace lockstep {

namespace {

// A stage's list while it is written: of each chunk and step the next micro-batch comes next.
class StageList {
 public:
  explicit StageList(int chunks) : done_(static_cast<std::size_t>(chunks) * 4, 0) {}

  void forward(int chunk) { add(ChunkStep::forward, chunk); }
  void backward(int chunk) { add(ChunkStep::backward, chunk); }
  void input(int chunk) { add(ChunkStep::backward_input, chunk); }
  void weight(int chunk) { add(ChunkStep::backward_weight, chunk); }
  int done(ChunkStep step, int chunk) const { return done_[at(step, chunk)]; }

  // A schedule for more micro-batches than there are stays one when those that are not there are left out.
  std::vector<ChunkAction> of(int micro) {
    std::erase_if(list_, [=](const ChunkAction& a) { return a.micro >= micro; });
    return std::move(list_);
  }

 private:
  static std::size_t at(ChunkStep step, int chunk) {
    return static_cast<std::size_t>(chunk) * 4 + static_cast<int>(step);
  }
  void add(ChunkStep step, int chunk) { list_.push_back({step, chunk, done_[at(step, chunk)]++}); }

  std::vector<int> done_;
  std::vector<ChunkAction> list_;
};

std::vector<ChunkAction> afab(const PipelineShape& shape, int stage) {
  StageList list(shape.stages);
  for (int m = 0; m < shape.micro; ++m) list.forward(stage);
  for (int m = 0; m < shape.micro; ++m) list.backward(stage);
  return list.of(shape.micro);
}

std::vector<ChunkAction> one_f_one_b(const PipelineShape& shape, int stage) {
  StageList list(shape.stages);
  const int ahead = std::min(shape.micro, shape.stages - 1 - stage);
  for (int i = 0; i < ahead; ++i) list.forward(stage);
  for (int i = ahead; i < shape.micro; ++i) list.forward(stage), list.backward(stage);
  for (int i = 0; i < ahead; ++i) list.backward(stage);
  return list.of(shape.micro);
}

// Micro-batches go in rounds of as many as there are stages, each round through all chunks of a stage; forwards run
// ahead of backwards by two for every later stage, and by a round for every chunk but one.
std::vector<ChunkAction> interleaved(const PipelineShape& shape, int stage) {
  const int p = shape.stages, v = shape.chunks, rounds = ceil_div(shape.micro, p), total = rounds * p * v;
  StageList list(p * v);
  const auto nth_chunk = [&](int i) { return i / p % v * p + stage; };
  const auto forward = [&](int i) { list.forward(nth_chunk(i)); };
  const auto backward = [&](int i) { list.backward((v - 1 - i / p % v) * p + stage); };
  const int ahead = std::min(total, 2 * (p - 1 - stage) + (v - 1) * p);
  for (int i = 0; i < ahead; ++i) forward(i);
  for (int i = ahead; i < total; ++i) forward(i), backward(i - ahead);
  for (int i = total - ahead; i < total; ++i) backward(i);
  return list.of(shape.micro);
}

// The later a stage, the more of its weight steps wait for the end, where the stages before it are still busy: each
// keeps as many micro-batches as the first stage must.
std::vector<ChunkAction> zb_h1(const PipelineShape& shape, int stage) {
  StageList list(shape.stages);
  const int ahead = std::min(shape.micro, shape.stages - 1 - stage);
  for (int i = 0; i < ahead; ++i) list.forward(stage);
  for (int i = ahead; i < shape.micro; ++i) {
    list.forward(stage), list.input(stage);
    if (i - ahead >= stage) list.weight(stage);
  }
  for (int i = 0; i < ahead; ++i) list.input(stage), list.weight(stage);
  while (list.done(ChunkStep::backward_weight, stage) < shape.micro) list.weight(stage);
  return list.of(shape.micro);
}

// Down the V and up again: chunk `down` is the stage's on the way to the last stage, `up` on the way back. Every stage
// fills the time until the first micro-batch comes back with forwards of both, and the time at the end with weights.
std::vector<ChunkAction> zb_v(const PipelineShape& shape, int stage) {
  const int p = shape.stages, m = std::max(shape.micro, 2 * p), down = stage, up = 2 * p - 1 - stage;
  StageList list(2 * p);
  const auto forwards = [&](int chunk) { return list.done(ChunkStep::forward, chunk); };
  const auto weights = [&](int chunk) { return list.done(ChunkStep::backward_weight, chunk); };
  for (int i = 0; i < 2 * (p - stage) - 1; ++i) list.forward(down);
  for (int i = 0; i < stage; ++i) list.forward(up), list.forward(down);
  for (int i = 0; i < p - stage; ++i) list.forward(up), list.input(up), list.weight(up);
  while (forwards(up) < m) {
    if (forwards(down) < m) list.forward(down);
    list.input(down), list.weight(down);
    list.forward(up), list.input(up), list.weight(up);
  }
  for (int i = 0; i < stage; ++i) list.input(down), list.input(up);
  for (int i = 0; i < p - stage; ++i) list.input(down), list.weight(down);
  while (weights(up) < m) list.weight(up);
  while (weights(down) < m) list.weight(down);
  return list.of(shape.micro);
}

}  // namespace

void check_schedule(ScheduleKind kind, const PipelineShape& shape, const ScheduleFault& fail) {
  const std::string_view name = name_of(kind);
  if (kind == ScheduleKind::zb_v && shape.chunks != 2)
    fail(fmt::format("schedule \"{}\" is a V of 2 chunks per stage, not of {}", name, shape.chunks), "use chunks = 2");
  if (shape.chunks > 1 && usual_chunks(kind) == 1)
    fail(fmt::format("schedule \"{}\" has one chunk per stage, not {}", name, shape.chunks),
         "use chunks = 1, or schedule = \"interleaved\"");
}

PipelineSchedule make_schedule(ScheduleKind kind, const PipelineShape& shape) {
  using Generator = std::vector<ChunkAction> (*)(const PipelineShape&, int);
  constexpr Generator kGenerators[] = {afab, one_f_one_b, interleaved, zb_h1, zb_v, one_f_one_b, one_f_one_b};
  PipelineSchedule schedule{.shape = shape, .stage_of = {}, .stages = {}};
  for (int k = 0; k < shape.stages * shape.chunks; ++k) {
    const int place = k % shape.stages;
    schedule.stage_of.push_back(kind == ScheduleKind::zb_v && k >= shape.stages ? shape.stages - 1 - place : place);
  }
  for (int s = 0; s < shape.stages; ++s) schedule.stages.push_back(kGenerators[static_cast<int>(kind)](shape, s));
  return schedule;
}

int most_in_flight(ScheduleKind kind, const PipelineShape& shape, int stage) {
  const int p = shape.stages, v = shape.chunks, all = shape.micro * v;
  switch (kind) {
    case ScheduleKind::afab:
      return all;
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::pipedream:
    case ScheduleKind::pipedream_2bw:
      return std::min(all, p - stage);
    case ScheduleKind::interleaved:
      return std::min(all, 2 * (p - 1 - stage) + (v - 1) * p + 1);
    case ScheduleKind::zb_h1:
      return std::min(all, p);
    case ScheduleKind::zb_v:
      return std::min(all, 2 * p);
  }
  return all;
}

int in_flight(const std::vector<ChunkAction>& stage) {
  int now = 0, most = 0;
  for (const ChunkAction& a : stage) {
    if (a.step == ChunkStep::forward) most = std::max(most, ++now);
    if (a.step == ChunkStep::backward || a.step == ChunkStep::backward_weight) --now;
  }
  return most;
}

namespace {

// Which steps have run, while the lists of all stages are run beside each other.
class Progress {
 public:
  explicit Progress(const PipelineSchedule& s)
      : last_(static_cast<int>(s.stage_of.size()) - 1), micro_(s.shape.micro), done_(3 * s.stage_of.size(), 0) {}

  // Micro-batches of each step are in order, so that a count says it all.
  int& count(ChunkStep step, int chunk) {
    const int row = step == ChunkStep::forward ? 0 : step == ChunkStep::backward_weight ? 2 : 1;
    return done_[static_cast<std::size_t>(3 * chunk + row)];
  }
  bool ready(const ChunkAction& a) {
    if (a.step == ChunkStep::forward) return a.chunk == 0 || count(ChunkStep::forward, a.chunk - 1) > a.micro;
    if (a.step == ChunkStep::backward_weight) return count(ChunkStep::backward_input, a.chunk) > a.micro;
    return count(ChunkStep::forward, a.chunk) > a.micro &&
           (a.chunk == last_ || count(ChunkStep::backward_input, a.chunk + 1) > a.micro);
  }
  void run(const ChunkAction& a) {
    ++count(a.step, a.chunk);
    if (a.step == ChunkStep::backward) ++count(ChunkStep::backward_weight, a.chunk);
  }
  // The micro-batches of every step come in turn, which is more than the sums need, and what keeps messages in order.
  bool in_turn(const ChunkAction& a) {
    return a.micro < micro_ && count(a.step, a.chunk) == a.micro &&
           (a.step != ChunkStep::backward || count(ChunkStep::backward_weight, a.chunk) == a.micro);
  }

 private:
  int last_, micro_;
  std::vector<int> done_;
};

constexpr char letter_of(ChunkStep step) { return "FBIW"[static_cast<int>(step)]; }

std::string word_of(const ChunkAction& a, bool with_chunk) {
  return with_chunk ? fmt::format("{}{}@{}", letter_of(a.step), a.micro, a.chunk)
                    : fmt::format("{}{}", letter_of(a.step), a.micro);
}

}  // namespace

std::string schedule_fault(const PipelineSchedule& schedule) {
  const int chunks = static_cast<int>(schedule.stage_of.size());
  const bool named = schedule.shape.chunks > 1;
  const auto at = [&](std::size_t stage, const ChunkAction& a) {
    return fmt::format("stage {}, {}", stage, word_of(a, named));
  };
  Progress turns(schedule);
  for (std::size_t s = 0; s < schedule.stages.size(); ++s)
    for (const ChunkAction& a : schedule.stages[s]) {
      if (a.chunk < 0 || a.chunk >= chunks || a.micro < 0 || a.micro >= schedule.shape.micro)
        return at(s, a) + ": there is no such chunk or micro-batch";
      if (schedule.stage_of[static_cast<std::size_t>(a.chunk)] != static_cast<int>(s))
        return at(s, a) + fmt::format(": chunk {} is another stage's", a.chunk);
      if (!turns.in_turn(a)) return at(s, a) + ": it is not the next micro-batch's turn, or it has run";
      turns.run(a);
    }
  for (int k = 0; k < chunks; ++k)
    for (const ChunkStep step : {ChunkStep::forward, ChunkStep::backward_input, ChunkStep::backward_weight})
      if (const int done = turns.count(step, k); done < schedule.shape.micro)
        return at(static_cast<std::size_t>(schedule.stage_of[static_cast<std::size_t>(k)]), {step, k, done}) +
               " is missing";

  Progress progress(schedule);
  std::vector<std::size_t> next(schedule.stages.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < next.size(); ++s)
      for (; next[s] < schedule.stages[s].size() && progress.ready(schedule.stages[s][next[s]]);
           ++next[s], moved = true)
        progress.run(schedule.stages[s][next[s]]);
  }
  for (std::size_t s = 0; s < next.size(); ++s)
    if (next[s] < schedule.stages[s].size())
      return at(s, schedule.stages[s][next[s]]) + ": it waits for ever, the stages wait for each other";
  return "";
}

std::string to_text(const PipelineSchedule& schedule) {
  std::string text;
  for (const auto& stage : schedule.stages) {
    for (std::size_t i = 0; i < stage.size(); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : " ", word_of(stage[i], schedule.shape.chunks > 1));
    text += '\n';
  }
  return text;
}

}  // namespace lockstep
