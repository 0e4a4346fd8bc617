// Worlds whose ranks do not run in step: the ranks of dp follow different schedules, and each of all does late what can
// wait and early what can be done early. Each list is a step by itself, messages come in the order in which they are
// sent, and all meet in one order; but some of these worlds stand still, where in a circle each rank waits for the
// next.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <vector>

#include "spec/world_mutations.h"

namespace lockstep::tests {

// One rank's list out of one that is in step. What ranks of tp do together is drawn from `joint`, the rest from `own`.
class Scattered {
 public:
  Scattered(const StepShape& shape, std::mt19937 joint, std::mt19937 own)
      : shape_(shape), joint_(joint), own_(own), late_(1 + below(joint_, 2) * below(joint_, 6)) {}

  // `meetings`: what the ranks of dp do together before the norm, in order; a gather stands for a unit that is released
  // and gathered again.
  std::vector<Action> list(const std::vector<Action>& in_step, const std::vector<Action>& meetings) {
    lend(ActionKind::gather);
    meetings_.assign(meetings.begin(), meetings.end());
    const int late = 1 + below(own_, 2) * below(own_, 6);
    const auto norm = std::ranges::find(in_step, ActionKind::norm, &Action::kind);
    for (auto a = in_step.begin(); a != norm; ++a) {
      if (one_in(own_, 10)) hoist(a, norm);
      if (is_send(a->kind))
        sends_[other_end(*a, shape_)].push_back(*a);
      else if (a->kind != ActionKind::reduce && !has(*a))
        out_.push_back(*a);
      seen_.push_back(*a);
      while (!meetings_.empty() && one_in(joint_, late_) && meet()) continue;
      for (auto& [to, queue] : sends_)
        while (!queue.empty() && one_in(own_, late) && send(queue)) continue;
    }
    while (!meetings_.empty() && meet()) continue;
    for (auto& [to, queue] : sends_)
      while (!queue.empty() && send(queue)) continue;
    lend(ActionKind::release);
    out_.insert(out_.end(), norm, in_step.end());
    return out_;
  }

 private:
  bool has(const Action& a) const { return std::ranges::find(out_, a) != out_.end(); }
  bool was_in_step(const Action& a) const { return std::ranges::find(seen_, a) != seen_.end(); }
  void lend(ActionKind kind) {
    for (int u = 0; u < shape_.units; ++u)
      if (shape_.gathers && (shape_.has(u) || shape_.has_copy(u))) out_.push_back({kind, u});
  }
  // The next receive.
  template <class Iterator>
  void hoist(Iterator from, Iterator to) {
    const auto next = std::find_if(from, to, [&](const Action& a) { return is_receive(a.kind) && !has(a); });
    if (next != to) out_.push_back(*next);
  }
  bool meet() {
    const Action a = meetings_.front();
    if (a.kind == ActionKind::gather)
      out_.push_back({ActionKind::release, a.unit});
    else if (!can_reduce(a))
      return false;
    out_.push_back(a);
    meetings_.pop_front();
    return true;
  }
  bool can_reduce(const Action& a) const {
    const auto has_all = [&](int u) {
      for (int m = 0; m < shape_.micro; ++m)
        if ((a.micro < 0 || a.micro == m) && !has({ActionKind::backward_weight, u, m})) return false;
      return true;
    };
    if (!has_all(a.unit)) return false;
    if (!shape_.has_tie() || a.unit != shape_.tie_owner) return true;
    if (!shape_.tie_is_sent()) return has_all(shape_.tie_borrower);
    return (a.micro >= 0 && a.micro < shape_.micro - 1) || was_in_step({ActionKind::receive_tied_gradient, a.unit});
  }
  bool send(std::deque<Action>& queue) {
    const Action a = queue.front();
    if (a.kind == ActionKind::send_tied_gradient &&
        !has({ActionKind::reduce, a.unit, shape_.reduces_each ? shape_.micro - 1 : -1}))
      return false;
    out_.push_back(a);
    queue.pop_front();
    return true;
  }

  StepShape shape_;
  std::mt19937 joint_, own_;
  int late_;
  std::vector<Action> out_, seen_;
  std::deque<Action> meetings_;
  std::map<int, std::deque<Action>> sends_;  // by the other stage
};

inline WorldLists scattered_world(std::mt19937& random) {
  const PipelineShape pipeline{2 + below(random, 2), 2 + below(random, 5), 1 + below(random, 2)};
  const std::vector<int> stage_of = random_stages(pipeline, random);
  const bool ahead = one_in(random, 2);
  StepShape shape = random_shape(pipeline.micro, stage_of, random);
  WorldLists world{.shape = shape, .dp = 1 + below(random, 2), .tp = 1 + below(random, 2), .ranks = {}};
  std::vector<std::vector<Action>> meetings(static_cast<std::size_t>(pipeline.stages));
  for (int d = 0; d < world.dp; ++d) {
    const PipelineSchedule schedule = random_schedule(pipeline, stage_of, random);
    for (int s = 0; s < pipeline.stages; ++s) {
      shape.stage = s;
      StepShape without = shape;
      without.gathers = false;
      const std::vector<Action> list = pipeline_step(schedule, without, ahead);
      for (const Action& a : d == 0 ? list : std::vector<Action>{}) {
        if (shape.gathers && is_phase(a.kind) && one_in(random, 12))
          meetings[s].push_back({ActionKind::gather, a.unit});
        if (a.kind == ActionKind::reduce) meetings[s].push_back(a);
      }
      const std::mt19937 joint(random());
      for (int t = 0; t < world.tp; ++t)
        world.ranks.push_back(Scattered(shape, joint, std::mt19937(random())).list(list, meetings[s]));
    }
  }
  return world;
}

}  // namespace lockstep::tests
