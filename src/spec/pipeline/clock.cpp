#include "spec/pipeline/clock.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "base/error.h"

namespace lockstep {

double PipelineTimeline::makespan() const {
  double begin = std::numeric_limits<double>::infinity(), end = -begin;
  for (const auto& stage : stages)
    for (const ChunkSpan& span : stage) begin = std::min(begin, span.begin), end = std::max(end, span.end);
  return end > begin ? end - begin : 0;
}

double PipelineTimeline::bubble() const {
  const double all = makespan() * static_cast<double>(stages.size());
  double busy = 0;
  for (const auto& stage : stages)
    for (const ChunkSpan& span : stage) busy += span.end - span.begin;
  return all > 0 ? (all - busy) / all : 0;
}

double PipelineTimeline::own_bubble(int stage) const {
  const std::vector<ChunkSpan>& spans = stages.at(static_cast<std::size_t>(stage));
  if (spans.empty()) return 0;
  double busy = 0;
  for (const ChunkSpan& span : spans) busy += span.end - span.begin;
  const double all = spans.back().end - spans.front().begin;
  return all > 0 ? (all - busy) / all : 0;
}

namespace {

class ScheduleClock {
 public:
  ScheduleClock(const PipelineSchedule& schedule, const std::function<ChunkTimes(int)>& times) : schedule_(schedule) {
    for (int k = 0; k < chunks(); ++k) times_.push_back(times(k));
  }

  PipelineTimeline timeline() {
    PipelineTimeline line;
    line.stages.resize(schedule_.stages.size());
    std::size_t left = 0;
    for (const auto& stage : schedule_.stages) left += stage.size();
    while (left > 0) {
      const std::size_t before = left;
      for (std::size_t s = 0; s < schedule_.stages.size(); ++s) {
        const auto& list = schedule_.stages[s];
        auto& spans = line.stages[s];
        while (spans.size() < list.size()) {
          const ChunkAction& a = list[spans.size()];
          const double ready = ready_at(a);
          if (ready < 0) break;
          const double begin = std::max(spans.empty() ? 0 : spans.back().end, ready), end = begin + length(a);
          spans.push_back({a, begin, end});
          finish(a, end);
          --left;
        }
      }
      LOCKSTEP_CHECK(left < before, "stages wait for each other: {}", schedule_fault(schedule_));
    }
    return line;
  }

 private:
  enum Made { output, input_gradient };
  int chunks() const { return static_cast<int>(schedule_.stage_of.size()); }

  // When what another chunk made is where this one is; negative: not yet made.
  double arrival(Made made, int from, int to, int micro) const {
    const auto at = done_.find({made, from, micro});
    if (at == done_.end()) return -1;
    const bool sent =
        schedule_.stage_of[static_cast<std::size_t>(from)] != schedule_.stage_of[static_cast<std::size_t>(to)];
    return at->second + (sent ? times_[static_cast<std::size_t>(from)].message : 0);
  }
  double ready_at(const ChunkAction& a) const {
    if (a.step == ChunkStep::forward) return a.chunk == 0 ? 0 : arrival(output, a.chunk - 1, a.chunk, a.micro);
    if (a.step == ChunkStep::backward_weight) return arrival(input_gradient, a.chunk, a.chunk, a.micro);
    const double own = arrival(output, a.chunk, a.chunk, a.micro);
    if (a.chunk == chunks() - 1 || own < 0) return own;
    const double after = arrival(input_gradient, a.chunk + 1, a.chunk, a.micro);
    return after < 0 ? -1 : std::max(own, after);
  }
  double length(const ChunkAction& a) const {
    const ChunkTimes& t = times_[static_cast<std::size_t>(a.chunk)];
    switch (a.step) {
      case ChunkStep::forward:
        return t.forward;
      case ChunkStep::backward:
        return t.input + t.weight;
      case ChunkStep::backward_input:
        return t.input;
      case ChunkStep::backward_weight:
        return t.weight;
    }
    return 0;
  }
  void finish(const ChunkAction& a, double end) {
    if (a.step == ChunkStep::forward) done_[{output, a.chunk, a.micro}] = end;
    if (a.step == ChunkStep::backward || a.step == ChunkStep::backward_input)
      done_[{input_gradient, a.chunk, a.micro}] = end;
  }

  const PipelineSchedule& schedule_;
  std::vector<ChunkTimes> times_;
  std::map<std::tuple<Made, int, int>, double> done_;
};

}  // namespace

PipelineTimeline timed(const PipelineSchedule& schedule, const std::function<ChunkTimes(int)>& times) {
  return ScheduleClock(schedule, times).timeline();
}

}  // namespace lockstep
