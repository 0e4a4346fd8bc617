#include "spec/step/actions.h"

#include <fmt/format.h>

#include <deque>
#include <iterator>
#include <map>

namespace lockstep {

std::string_view name_of(ActionKind kind) {
  constexpr std::string_view kNames[] = {"forward",
                                         "backward_input",
                                         "backward_weight",
                                         "gather",
                                         "release",
                                         "reduce",
                                         "norm",
                                         "update",
                                         "publish",
                                         "stash",
                                         "send_output",
                                         "receive_output_gradient",
                                         "receive_input",
                                         "send_input_gradient",
                                         "send_tied_gradient",
                                         "receive_tied_gradient",
                                         "send_tied_weight",
                                         "receive_tied_weight"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(ActionKind::receive_tied_weight) + 1);
  return kNames[static_cast<int>(kind)];
}

std::string to_string(const Action& a) {
  const std::string_view name = name_of(a.kind);
  if (a.version != kCurrentWeights) {
    const std::string micro = a.kind == ActionKind::stash ? "" : fmt::format(", {}", a.micro);
    return fmt::format("{}({}{}, version {})", name, a.unit, micro, a.version);
  }
  if (a.kind == ActionKind::norm) return std::string(name);
  const bool of_a_micro = is_phase(a.kind) || is_handed_on(a.kind) || a.micro >= 0;
  return of_a_micro ? fmt::format("{}({}, {})", name, a.unit, a.micro) : fmt::format("{}({})", name, a.unit);
}

int other_end(const Action& a, const StepShape& shape) {
  switch (a.kind) {
    case ActionKind::send_output:
    case ActionKind::receive_output_gradient:
      return shape.stage_of(a.unit + 1);
    case ActionKind::receive_input:
    case ActionKind::send_input_gradient:
      return shape.stage_of(a.unit - 1);
    default:
      return shape.stage_of(a.unit == shape.tie_owner ? shape.tie_borrower : shape.tie_owner);
  }
}

std::vector<std::size_t> sent_by(const std::vector<Action>& actions, const StepShape& shape) {
  std::vector<std::size_t> until(actions.size());
  std::map<int, std::deque<std::size_t>> under_way;  // by the other stage
  for (std::size_t i = 0; i < actions.size(); ++i) {
    until[i] = i;
    if (!is_send(actions[i].kind)) continue;
    std::deque<std::size_t>& queue = under_way[other_end(actions[i], shape)];
    if (queue.size() == kSendsInFlight) until[queue.front()] = i, queue.pop_front();
    queue.push_back(i);
    until[i] = actions.size();
  }
  return until;
}

std::vector<Action> work_of(const StepShape& shape) {
  std::vector<Action> work{{ActionKind::norm}};
  for (int u = 0; u < shape.units; ++u) {
    const bool trains = shape.trains(u), goes_back = shape.goes_back(u);
    if (shape.has_copy(u) && shape.publishes && trains) work.push_back({ActionKind::publish, u});
    if (!shape.has(u)) continue;
    for (int m = 0; m < shape.micro; ++m) {
      work.push_back({ActionKind::forward, u, m});
      if (goes_back) work.push_back({ActionKind::backward_input, u, m});
      if (trains) work.push_back({ActionKind::backward_weight, u, m});
      if (shape.reduces_each && trains) work.push_back({ActionKind::reduce, u, m});
      if (shape.comes(u)) {
        work.push_back({ActionKind::receive_input, u, m});
        if (shape.goes_back(u - 1)) work.push_back({ActionKind::send_input_gradient, u, m});
      }
      if (shape.goes(u)) {
        work.push_back({ActionKind::send_output, u, m});
        if (goes_back) work.push_back({ActionKind::receive_output_gradient, u, m});
      }
    }
    if (!trains) continue;
    if (!shape.reduces_each) work.push_back({ActionKind::reduce, u});
    work.push_back({ActionKind::update, u});
    if (shape.publishes) work.push_back({ActionKind::publish, u});
    if (!shape.tie_is_sent()) continue;
    if (u == shape.tie_owner)
      for (const ActionKind kind : {ActionKind::receive_tied_gradient, ActionKind::send_tied_weight})
        work.push_back({kind, u});
    if (u == shape.tie_borrower)
      for (const ActionKind kind : {ActionKind::send_tied_gradient, ActionKind::receive_tied_weight})
        work.push_back({kind, u});
  }
  return work;
}

bool goes_with_next(const std::vector<Action>& actions, std::size_t index, const StepShape& shape) {
  if (index + 1 >= actions.size()) return false;
  const Action &a = actions[index], &b = actions[index + 1];
  const bool calls = a.kind == ActionKind::gather || a.kind == ActionKind::reduce;
  return calls && a.kind == b.kind && a.micro == b.micro && shape.bundle_of(a.unit) == shape.bundle_of(b.unit);
}

std::vector<int> units_read(const Action& phase, const StepShape& shape) {
  if (phase.kind == ActionKind::backward_weight) return {};
  if (phase.kind == ActionKind::backward_input) return phase.unit == 0 ? std::vector<int>{} : std::vector{phase.unit};
  if (shape.tie_borrower >= 0 && phase.unit == shape.tie_borrower) return {phase.unit, shape.tie_owner};
  return {phase.unit};
}

}  // namespace lockstep
