#include "spec/actions.h"

#include <fmt/format.h>

#include <deque>
#include <map>

namespace lockstep {

std::string to_string(const Action& a) {
  switch (a.kind) {
    case ActionKind::forward:
      return fmt::format("forward({}, {})", a.unit, a.micro);
    case ActionKind::backward_input:
      return fmt::format("backward_input({}, {})", a.unit, a.micro);
    case ActionKind::backward_weight:
      return fmt::format("backward_weight({}, {})", a.unit, a.micro);
    case ActionKind::gather:
      return fmt::format("gather({})", a.unit);
    case ActionKind::release:
      return fmt::format("release({})", a.unit);
    case ActionKind::reduce:
      return a.micro < 0 ? fmt::format("reduce({})", a.unit) : fmt::format("reduce({}, {})", a.unit, a.micro);
    case ActionKind::norm:
      return "norm";
    case ActionKind::update:
      return fmt::format("update({})", a.unit);
    case ActionKind::publish:
      return fmt::format("publish({})", a.unit);
    case ActionKind::send_output:
      return fmt::format("send_output({}, {})", a.unit, a.micro);
    case ActionKind::receive_output_gradient:
      return fmt::format("receive_output_gradient({}, {})", a.unit, a.micro);
    case ActionKind::receive_input:
      return fmt::format("receive_input({}, {})", a.unit, a.micro);
    case ActionKind::send_input_gradient:
      return fmt::format("send_input_gradient({}, {})", a.unit, a.micro);
    case ActionKind::send_tied_gradient:
      return fmt::format("send_tied_gradient({})", a.unit);
    case ActionKind::receive_tied_gradient:
      return fmt::format("receive_tied_gradient({})", a.unit);
    case ActionKind::send_tied_weight:
      return fmt::format("send_tied_weight({})", a.unit);
    case ActionKind::receive_tied_weight:
      return fmt::format("receive_tied_weight({})", a.unit);
  }
  return "?";
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
    if (shape.has_copy(u) && shape.publishes) work.push_back({ActionKind::publish, u});
    if (!shape.has(u)) continue;
    for (int m = 0; m < shape.micro; ++m) {
      for (const ActionKind phase : {ActionKind::forward, ActionKind::backward_input, ActionKind::backward_weight})
        work.push_back({phase, u, m});
      if (shape.reduces_each) work.push_back({ActionKind::reduce, u, m});
      if (shape.comes(u))
        for (const ActionKind kind : {ActionKind::receive_input, ActionKind::send_input_gradient})
          work.push_back({kind, u, m});
      if (shape.goes(u))
        for (const ActionKind kind : {ActionKind::send_output, ActionKind::receive_output_gradient})
          work.push_back({kind, u, m});
    }
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

std::vector<int> units_read(const Action& phase, const StepShape& shape) {
  if (phase.kind == ActionKind::backward_weight) return {};
  if (phase.kind == ActionKind::backward_input) return phase.unit == 0 ? std::vector<int>{} : std::vector{phase.unit};
  if (shape.tie_borrower >= 0 && phase.unit == shape.tie_borrower) return {phase.unit, shape.tie_owner};
  return {phase.unit};
}

}  // namespace lockstep
