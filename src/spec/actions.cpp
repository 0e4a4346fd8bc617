#include "spec/actions.h"

#include <fmt/format.h>

#include "base/error.h"

namespace lockstep {

std::string to_string(const Action& a) {
  switch (a.kind) {
    case ActionKind::forward:
      return fmt::format("forward({}, {})", a.unit, a.micro);
    case ActionKind::backward_input:
      return fmt::format("backward_input({}, {})", a.unit, a.micro);
    case ActionKind::backward_weight:
      return fmt::format("backward_weight({}, {})", a.unit, a.micro);
    case ActionKind::reduce:
      return fmt::format("reduce({})", a.unit);
    case ActionKind::norm:
      return "norm";
    case ActionKind::update:
      return fmt::format("update({})", a.unit);
    case ActionKind::publish:
      return fmt::format("publish({})", a.unit);
  }
  return "?";
}

std::vector<Action> forward_pass(const StepShape& shape) {
  std::vector<Action> list;
  for (int m = 0; m < shape.micro; ++m)
    for (int u = 0; u < shape.units; ++u) list.push_back({ActionKind::forward, u, m});
  return list;
}

std::vector<Action> serial_step(const StepShape& shape) {
  std::vector<Action> list;
  for (int m = 0; m < shape.micro; ++m) {
    for (int u = 0; u < shape.units; ++u) list.push_back({ActionKind::forward, u, m});
    for (int u = shape.units - 1; u >= 0; --u) {
      list.push_back({ActionKind::backward_input, u, m});
      list.push_back({ActionKind::backward_weight, u, m});
      if (m == shape.micro - 1) list.push_back({ActionKind::reduce, u});
    }
  }
  list.push_back({ActionKind::norm});
  for (int u = 0; u < shape.units; ++u) {
    list.push_back({ActionKind::update, u});
    if (shape.publishes) list.push_back({ActionKind::publish, u});
  }
  return list;
}

namespace {

// Which actions have run, while a list is walked.
class Walk {
 public:
  explicit Walk(const StepShape& shape)
      : shape_(shape),
        phases_(3 * static_cast<std::size_t>(shape.units) * shape.micro, false),
        reduced_(shape.units, false),
        updated_(shape.units, false),
        published_(shape.units, false) {}

  bool in_range(const Action& a) const {
    if (a.kind == ActionKind::norm) return a.unit == -1 && a.micro == -1;
    if (a.unit < 0 || a.unit >= shape_.units) return false;
    if (a.kind == ActionKind::publish && !shape_.publishes) return false;
    return is_phase(a.kind) ? a.micro >= 0 && a.micro < shape_.micro : a.micro == -1;
  }

  bool has_run(const Action& a) const { return const_cast<Walk*>(this)->mark(a); }
  void run(const Action& a) { mark(a) = true; }

  // What has to come before `a`, given to `visit`.
  template <class Visit>
  void each_need(const Action& a, Visit&& visit) const {
    const int u = a.unit, m = a.micro, last = shape_.units - 1;
    switch (a.kind) {
      case ActionKind::forward:
        if (u > 0) visit(Action{ActionKind::forward, u - 1, m});
        if (u == last && m > 0) visit(Action{ActionKind::forward, u, m - 1});
        return;
      case ActionKind::backward_input:
        visit(Action{ActionKind::forward, u, m});
        if (u < last) visit(Action{ActionKind::backward_input, u + 1, m});
        return;
      case ActionKind::backward_weight:
        visit(Action{ActionKind::backward_input, u, m});
        if (m > 0) visit(Action{ActionKind::backward_weight, u, m - 1});
        return;
      case ActionKind::reduce:
        for (int i = 0; i < shape_.micro; ++i) visit(Action{ActionKind::backward_weight, u, i});
        if (u == shape_.tie_owner)
          for (int i = 0; i < shape_.micro; ++i) visit(Action{ActionKind::backward_weight, shape_.tie_borrower, i});
        return;
      case ActionKind::norm:
        for (int i = 0; i < shape_.units; ++i) visit(Action{ActionKind::reduce, i});
        return;
      case ActionKind::update:
        visit(Action{ActionKind::norm});
        return;
      case ActionKind::publish:
        visit(Action{ActionKind::update, u});
        return;
    }
  }

 private:
  static bool is_phase(ActionKind kind) { return kind <= ActionKind::backward_weight; }

  std::vector<bool>::reference mark(const Action& a) {
    switch (a.kind) {
      case ActionKind::reduce:
        return reduced_[a.unit];
      case ActionKind::norm:
        return normed_[0];
      case ActionKind::update:
        return updated_[a.unit];
      case ActionKind::publish:
        return published_[a.unit];
      default:
        return phases_[(static_cast<std::size_t>(a.kind) * shape_.units + a.unit) * shape_.micro + a.micro];
    }
  }

  StepShape shape_;
  std::vector<bool> phases_, reduced_, updated_, published_, normed_{false};
};

}  // namespace

std::optional<std::string> find_fault(const std::vector<Action>& actions, const StepShape& shape) {
  LOCKSTEP_CHECK(shape.units >= 1 && shape.micro >= 1, "a step of {} units and {} micro-batches", shape.units,
                 shape.micro);
  Walk walk(shape);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    if (!walk.in_range(a)) return fmt::format("action {}, {}: there is no such action in this step", i, to_string(a));
    if (walk.has_run(a)) return fmt::format("action {}, {}: it has run before", i, to_string(a));
    std::optional<Action> missing;
    walk.each_need(a, [&](const Action& need) {
      if (!missing && !walk.has_run(need)) missing = need;
    });
    if (missing) return fmt::format("action {}, {}: needs {} first", i, to_string(a), to_string(*missing));
    walk.run(a);
  }
  for (const Action& a : serial_step(shape))
    if (!walk.has_run(a)) return fmt::format("{} is missing", to_string(a));
  return std::nullopt;
}

}  // namespace lockstep
