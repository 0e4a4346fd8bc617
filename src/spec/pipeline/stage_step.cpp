#include "spec/pipeline/stage_step.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "spec/step/residency.h"

namespace lockstep {

namespace {

enum class Handed { output, gradient, tied_gradient };

// What a step of a chunk sends to another stage, in order.
struct StageMessage {
  Handed what;
  int unit;  // that receives it
  int micro;
};

class StepWriter {
 public:
  StepWriter(const PipelineSchedule& schedule, const StepShape& shape, bool trains, bool ahead)
      : schedule_(schedule), shape_(shape), trains_(trains), ahead_(ahead) {
    LOCKSTEP_CHECK(schedule.stage_of == shape.stages.stage_of && schedule.shape.micro == shape.micro,
                   "a schedule of {} chunks and {} micro-batches for {} and {}", schedule.stage_of.size(),
                   schedule.shape.micro, shape.stages.chunks(), shape.micro);
  }

  std::vector<Action> list() {
    for (const ChunkAction& a : schedule_.stages[static_cast<std::size_t>(shape_.stage)]) {
      begins_.push_back(list_.size());
      write(a);
    }
    begins_.push_back(list_.size());
    insert_receives();
    if (trains_) write_end();
    return std::move(list_);
  }

 private:
  void add(ActionKind kind, int unit, int micro = -1) { list_.push_back({kind, unit, micro}); }
  int first(int chunk) const { return shape_.stages.first(chunk); }
  int end(int chunk) const { return shape_.stages.end(chunk, shape_.units); }

  void write(const ChunkAction& a) {
    switch (a.step) {
      case ChunkStep::forward:
        return forward(a.chunk, a.micro);
      case ChunkStep::backward:
        return backward(a, true, true);
      case ChunkStep::backward_input:
        return backward(a, true, false);
      case ChunkStep::backward_weight:
        return backward(a, false, true);
    }
  }

  void forward(int chunk, int m) {
    for (int u = first(chunk); u < end(chunk); ++u) {
      add(ActionKind::forward, u, m);
      if (u == shape_.last() && trains_) {
        if (shape_.goes_back(u)) add(ActionKind::backward_input, u, m);
        weight(u, m);
      }
    }
    if (shape_.goes(end(chunk) - 1)) add(ActionKind::send_output, end(chunk) - 1, m);
  }

  void backward(const ChunkAction& a, bool input, bool weights) {
    if (!trains_) return;
    for (int u = std::min(end(a.chunk), shape_.last()) - 1; u >= first(a.chunk); --u) {
      if (input && shape_.goes_back(u)) add(ActionKind::backward_input, u, a.micro);
      if (weights) weight(u, a.micro);
    }
    if (input && shape_.comes(first(a.chunk)) && shape_.goes_back(first(a.chunk) - 1))
      add(ActionKind::send_input_gradient, first(a.chunk), a.micro);
  }

  void weight(int u, int m) {
    const bool ends = m == shape_.micro - 1;
    if (!shape_.trains(u)) return;
    add(ActionKind::backward_weight, u, m);
    if (shape_.reduces_each)
      add(ActionKind::reduce, u, m);
    else if (ends)
      add(ActionKind::reduce, u);
    if (ends && shape_.tie_is_sent() && u == shape_.tie_borrower) add(ActionKind::send_tied_gradient, u);
  }

  void write_end() {
    list_.push_back({ActionKind::norm});
    for (int u = 0; u < shape_.units; ++u) {
      if (!shape_.trains(u)) continue;
      if (shape_.has(u)) {
        add(ActionKind::update, u);
        if (shape_.tie_is_sent() && u == shape_.tie_owner) add(ActionKind::send_tied_weight, u);
      }
      if (shape_.has_copy(u)) add(ActionKind::receive_tied_weight, shape_.tie_borrower);
      if (shape_.publishes && (shape_.has(u) || shape_.has_copy(u))) add(ActionKind::publish, u);
    }
  }

  // What that stage sends to this one, in order.
  std::vector<StageMessage> messages_from(int stage) const {
    std::vector<StageMessage> messages;
    const auto to_here = [&](int unit) { return shape_.stage_of(unit) == shape_.stage; };
    for (const ChunkAction& a : schedule_.stages[static_cast<std::size_t>(stage)]) {
      const int after = end(a.chunk), before = first(a.chunk) - 1;
      const bool forward = a.step == ChunkStep::forward, input = !forward && a.step != ChunkStep::backward_weight;
      if (forward && after < shape_.units && to_here(after)) messages.push_back({Handed::output, after, a.micro});
      if (!trains_) continue;
      if (input && before >= 0 && to_here(before) && shape_.goes_back(before))
        messages.push_back({Handed::gradient, before, a.micro});
      if (forward && after == shape_.units && a.micro == shape_.micro - 1 && shape_.tie_is_sent() &&
          to_here(shape_.tie_owner))
        messages.push_back({Handed::tied_gradient, shape_.tie_owner, -1});
    }
    return messages;
  }

  // By what is handed on, chunk and micro-batch: the step of this stage's list that needs it.
  using Needs = std::map<std::tuple<Handed, int, int>, std::size_t>;
  Needs needs() const {
    Needs all;
    const auto& steps = schedule_.stages[static_cast<std::size_t>(shape_.stage)];
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto& [step, chunk, micro] = steps[i];
      if (step == ChunkStep::forward) all[{Handed::output, chunk, micro}] = i;
      if (step == ChunkStep::backward || step == ChunkStep::backward_input) all[{Handed::gradient, chunk, micro}] = i;
      if ((step == ChunkStep::backward || step == ChunkStep::backward_weight) && micro == shape_.micro - 1)
        all[{Handed::tied_gradient, chunk, -1}] = i;
    }
    return all;
  }

  // The stages that have a chunk before or after one of this stage's, or the other end of a tie.
  std::set<int> neighbours() const {
    std::set<int> stages;
    for (int k = 0; k < shape_.stages.chunks(); ++k) {
      if (shape_.stages.stage_of[static_cast<std::size_t>(k)] != shape_.stage) continue;
      if (first(k) > 0) stages.insert(shape_.stage_of(first(k) - 1));
      if (end(k) < shape_.units) stages.insert(shape_.stage_of(end(k)));
    }
    if (shape_.tie_is_sent() && shape_.has(shape_.tie_owner)) stages.insert(shape_.stage_of(shape_.tie_borrower));
    stages.erase(shape_.stage);
    return stages;
  }

  void insert_receives() {
    std::multimap<std::size_t, Action> before;  // by place in the list
    const Needs needed_at = needs();
    for (const int from : neighbours()) {
      const std::vector<StageMessage> messages = messages_from(from);
      std::size_t latest = begins_.size() - 1;
      std::vector<std::pair<std::size_t, Action>> placed;
      for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
        const auto step = needed_at.find({message->what, shape_.stages.chunk_of(message->unit), message->micro});
        LOCKSTEP_CHECK(step != needed_at.end(), "unit {} never needs what it is sent", message->unit);
        const std::size_t needed = step->second;
        latest = std::min(latest, ahead_ && needed > 0 ? needed - 1 : needed);
        constexpr ActionKind kKinds[] = {ActionKind::receive_input, ActionKind::receive_output_gradient,
                                         ActionKind::receive_tied_gradient};
        placed.emplace_back(begins_[latest],
                            Action{kKinds[static_cast<int>(message->what)], message->unit, message->micro});
      }
      for (auto one = placed.rbegin(); one != placed.rend(); ++one) before.insert(*one);
    }
    std::vector<Action> out;
    auto next = before.begin();
    for (std::size_t i = 0; i <= list_.size(); ++i) {
      for (; next != before.end() && next->first == i; ++next) out.push_back(next->second);
      if (i < list_.size()) out.push_back(list_[i]);
    }
    list_ = std::move(out);
  }

  const PipelineSchedule& schedule_;
  const StepShape& shape_;
  bool trains_, ahead_;
  std::vector<Action> list_;
  std::vector<std::size_t> begins_;  // by step of the stage: where it begins in the list; and the end
};

std::vector<Action> written(const PipelineSchedule& schedule, const StepShape& shape, bool trains, bool ahead) {
  std::vector<Action> list = StepWriter(schedule, shape, trains, ahead).list();
  return shape.gathers ? with_gathers(with_bundled_reductions(list, shape), shape) : list;
}

PipelineSchedule one_stage(const StepShape& shape) {
  return make_schedule(ScheduleKind::one_f_one_b, {.stages = 1, .micro = shape.micro});
}

}  // namespace

std::vector<Action> pipeline_step(const PipelineSchedule& schedule, const StepShape& shape, bool ahead) {
  return written(schedule, shape, true, ahead);
}

std::vector<Action> pipeline_forward(const PipelineSchedule& schedule, const StepShape& shape, bool ahead) {
  return written(schedule, shape, false, ahead);
}

std::vector<Action> serial_step(const StepShape& shape) { return pipeline_step(one_stage(shape), shape); }
std::vector<Action> forward_pass(const StepShape& shape) { return pipeline_forward(one_stage(shape), shape); }

std::vector<int> positions_of(const std::vector<Action>& actions, const PipelineSchedule& schedule,
                              const StepShape& shape) {
  // A phase belongs to the step that runs it: the one of its chunk and micro-batch; the last unit's to the forward.
  std::map<std::tuple<int, int, ActionKind>, int> position;
  const auto& steps = schedule.stages[static_cast<std::size_t>(shape.stage)];
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    const auto is = [&](ActionKind kind) {
      position[{steps[static_cast<std::size_t>(i)].chunk, steps[static_cast<std::size_t>(i)].micro, kind}] = i;
    };
    switch (steps[static_cast<std::size_t>(i)].step) {
      case ChunkStep::forward:
        is(ActionKind::forward);
        break;
      case ChunkStep::backward:
        is(ActionKind::backward_input), is(ActionKind::backward_weight);
        break;
      case ChunkStep::backward_input:
        is(ActionKind::backward_input);
        break;
      case ChunkStep::backward_weight:
        is(ActionKind::backward_weight);
        break;
    }
  }
  std::vector<int> positions;
  for (const Action& a : actions) {
    const ActionKind kind = a.unit == shape.last() ? ActionKind::forward : a.kind;
    const auto at = is_phase(a.kind) ? position.find({shape.stages.chunk_of(a.unit), a.micro, kind}) : position.end();
    positions.push_back(at == position.end() ? -1 : at->second);
  }
  return positions;
}

}  // namespace lockstep
