#include "spec/pipeline/pipedream.h"

#include "base/error.h"
#include "spec/pipeline/stage_step.h"

namespace lockstep {

namespace {

constexpr int kWrittenSteps = 3;  // the first, one like all others, and the last

// Writes a window from the list of 1f1b with a flush.
class WindowWriter {
 public:
  WindowWriter(const PipeDreamStage& of, const StepShape& shape) : of_(of), shape_(shape) {
    for (int u = 0; u < shape.units; ++u)
      if (shape.has(u)) units_.push_back(u);
  }

  PipeDreamLists lists() {
    const StepShape whole = window_shape(shape_, kWrittenSteps);
    const PipelineSchedule schedule =
        make_schedule(ScheduleKind::one_f_one_b, {.stages = of_.stages, .micro = whole.micro});
    PipeDreamLists lists;
    for (const int u : units_)
      for (int v = 1; v <= of_.stashes(); ++v) lists.begin.push_back({ActionKind::stash, u, -1, -v});
    for (const Action& a : pipeline_step(schedule, whole, false)) {
      if (a.kind == ActionKind::norm) break;  // what follows is the flush
      if (begins_micro(a)) forwards_ = a.micro + 1;
      if (a.kind != ActionKind::reduce || applies(a.micro)) add(lists, versioned(a));
      if (!ends_micro(a)) continue;
      if (applies(a.micro)) write_update(lists, a.micro);
      if (a.micro == whole.micro - 1 - of_.lag()) drains_ = true;
    }
    return lists;
  }

 private:
  bool begins_micro(const Action& a) const {
    return a.unit == units_.front() &&
           a.kind == (shape_.comes(a.unit) ? ActionKind::receive_input : ActionKind::forward);
  }
  bool ends_micro(const Action& a) const {
    return a.unit == units_.front() &&
           a.kind == (shape_.comes(a.unit) ? ActionKind::send_input_gradient : ActionKind::reduce);
  }
  // Whether the gradient is whole with this micro-batch.
  bool applies(int micro) const { return !of_.accumulates() || micro % shape_.micro == shape_.micro - 1; }
  int version_at(int micro) const { return of_.accumulates() ? micro / shape_.micro : micro; }

  Action versioned(Action a) const {
    if (is_phase(a.kind)) a.version = of_.accumulates() ? version_at(a.micro) - 1 : a.micro - of_.lag();
    return a;
  }
  void write_update(PipeDreamLists& lists, int micro) {
    add(lists, {ActionKind::norm, -1, micro});
    for (const int u : units_) {
      const int version = version_at(micro);
      // Once no forward follows, nobody will ask for what the weights were.
      if (of_.stashes() > 0 && !drains_) add(lists, {ActionKind::stash, u, -1, version});
      add(lists, {ActionKind::update, u, micro, version + 1});
    }
  }
  // To the list of its step, counted from that. Of the three steps the one in the middle is like all others, and what
  // the last one adds to that is how it drains.
  void add(PipeDreamLists& lists, Action a) const {
    const int step = drains_ ? kWrittenSteps : (forwards_ - 1) / shape_.micro;
    if (step == 2) return;
    if (a.micro >= 0 || a.kind == ActionKind::norm) a.micro -= step * shape_.micro;
    if (a.version != kCurrentWeights) a.version -= step * of_.updates_per_step();
    (step == 0 ? lists.begin : step == 1 ? lists.steady : lists.drain).push_back(a);
  }

  PipeDreamStage of_;
  const StepShape& shape_;
  std::vector<int> units_;  // that are here
  int forwards_ = 0;        // micro-batches that have begun
  bool drains_ = false;     // after the last forward and the backward beside it
};

}  // namespace

PipeDreamLists pipedream_lists(ScheduleKind kind, const StepShape& shape) {
  const PipeDreamStage of{.kind = kind, .stages = shape.stages.count(), .stage = shape.stage, .micro = shape.micro};
  LOCKSTEP_CHECK(shape.micro >= of.stages - 1 && !shape.has_tie() && !shape.gathers && !shape.publishes,
                 "{} micro-batches without a flush on {} stages", shape.micro, of.stages);
  return WindowWriter(of, shape).lists();
}

StepShape window_shape(StepShape shape, int steps) {
  shape.micro *= steps;
  shape.reduces_each = true;
  return shape;
}

std::vector<Action> window_of(const PipeDreamLists& lists, const PipeDreamStage& of, int steps) {
  std::vector<Action> window;
  const auto append = [&](const std::vector<Action>& list, int step) {
    for (Action a : list) {
      if (a.kind != ActionKind::stash) a.micro += step * of.micro;
      if (a.version != kCurrentWeights) a.version += step * of.updates_per_step();
      window.push_back(a);
    }
  };
  append(lists.begin, 0);
  for (int step = 1; step < steps; ++step) append(lists.steady, step);
  append(lists.drain, steps);
  return window;
}

std::vector<Action> without_versions(const std::vector<Action>& window, const StepShape& shape) {
  std::vector<Action> list;
  for (Action a : window) {
    if (a.kind == ActionKind::norm || a.kind == ActionKind::update || a.kind == ActionKind::stash ||
        a.kind == ActionKind::reduce)
      continue;
    a.version = kCurrentWeights;
    list.push_back(a);
  }
  for (int u = shape.last(); u >= 0; --u)
    if (shape.has(u)) list.push_back({ActionKind::reduce, u});
  list.push_back({ActionKind::norm});
  for (int u = 0; u < shape.units; ++u)
    if (shape.has(u)) list.push_back({ActionKind::update, u});
  return list;
}

}  // namespace lockstep
