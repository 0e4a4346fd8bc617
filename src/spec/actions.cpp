#include "spec/actions.h"

#include <fmt/format.h>

#include "spec/residency.h"

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
  }
  return "?";
}

std::vector<int> units_read(const Action& phase, const StepShape& shape) {
  if (phase.kind == ActionKind::backward_weight) return {};
  if (phase.kind == ActionKind::backward_input) return phase.unit == 0 ? std::vector<int>{} : std::vector{phase.unit};
  if (shape.tie_borrower >= 0 && phase.unit == shape.tie_borrower) return {phase.unit, shape.tie_owner};
  return {phase.unit};
}

std::vector<Action> forward_pass(const StepShape& shape) {
  std::vector<Action> list;
  for (int m = 0; m < shape.micro; ++m)
    for (int u = 0; u < shape.units; ++u) list.push_back({ActionKind::forward, u, m});
  return shape.gathers ? with_gathers(list, shape) : list;
}

std::vector<Action> serial_step(const StepShape& shape) {
  std::vector<Action> list;
  for (int m = 0; m < shape.micro; ++m) {
    for (int u = 0; u < shape.units; ++u) list.push_back({ActionKind::forward, u, m});
    for (int u = shape.units - 1; u >= 0; --u) {
      list.push_back({ActionKind::backward_input, u, m});
      list.push_back({ActionKind::backward_weight, u, m});
      if (shape.reduces_each)
        list.push_back({ActionKind::reduce, u, m});
      else if (m == shape.micro - 1)
        list.push_back({ActionKind::reduce, u});
    }
  }
  list.push_back({ActionKind::norm});
  for (int u = 0; u < shape.units; ++u) {
    list.push_back({ActionKind::update, u});
    if (shape.publishes) list.push_back({ActionKind::publish, u});
  }
  return shape.gathers ? with_gathers(list, shape) : list;
}

}  // namespace lockstep
