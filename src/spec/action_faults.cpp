// find_fault: a list of actions is walked, and each of them asked whether its time has come.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "spec/actions.h"

namespace lockstep {

namespace {

// Which actions have run, while a list is walked.
class Walk {
 public:
  explicit Walk(const StepShape& shape)
      : shape_(shape),
        phases_(3 * static_cast<std::size_t>(shape.units) * shape.micro, false),
        reduced_(static_cast<std::size_t>(shape.units) * shape.micro, false),
        updated_(shape.units, false),
        published_(shape.units, false),
        whole_(shape.units, false) {}

  bool in_range(const Action& a) const {
    if (a.kind == ActionKind::norm) return a.unit == -1 && a.micro == -1;
    if (a.unit < 0 || a.unit >= shape_.units) return false;
    if (a.kind == ActionKind::publish && !shape_.publishes) return false;
    if (is_lending(a.kind) && !shape_.gathers) return false;
    const bool of_a_micro = is_phase(a.kind) || (a.kind == ActionKind::reduce && shape_.reduces_each);
    return of_a_micro ? a.micro >= 0 && a.micro < shape_.micro : a.micro == -1;
  }

  // Once is enough: of all but gathers and releases.
  bool has_run(const Action& a) const { return !is_lending(a.kind) && const_cast<Walk*>(this)->mark(a); }
  bool is_missing(const Action& a) const { return !is_lending(a.kind) && !has_run(a); }
  void run(const Action& a) {
    if (is_lending(a.kind))
      whole_[a.unit] = a.kind == ActionKind::gather;
    else
      mark(a) = true;
  }

  // What is wrong with the unit's weights being whole, or not, now.
  std::optional<std::string> lending_fault(const Action& a) const {
    if (!shape_.gathers) return std::nullopt;
    if (a.kind == ActionKind::gather && whole_[a.unit]) return "it is whole already";
    if (a.kind == ActionKind::release && !whole_[a.unit]) return "it is not whole";
    if (a.kind == ActionKind::update && whole_[a.unit]) return "it is whole, and would be so with the old weights";
    if (a.kind == ActionKind::gather && updated_[a.unit]) return "it has moved, and nothing more reads it";
    if (is_phase(a.kind))
      for (const int u : units_read(a, shape_))
        if (!whole_[u]) return fmt::format("unit {} is not whole", u);
    return std::nullopt;
  }
  std::optional<int> still_whole() const {
    for (int u = 0; u < shape_.units; ++u)
      if (whole_[u]) return u;
    return std::nullopt;
  }

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
        return each_need_of_reduce(a, visit);
      case ActionKind::norm:
        for (int i = 0; i < shape_.units; ++i)
          for (int k = 0; k < (shape_.reduces_each ? shape_.micro : 1); ++k)
            visit(Action{ActionKind::reduce, i, shape_.reduces_each ? k : -1});
        return;
      case ActionKind::update:
        visit(Action{ActionKind::norm});
        return;
      case ActionKind::publish:
        visit(Action{ActionKind::update, u});
        return;
      case ActionKind::gather:
      case ActionKind::release:
        return;
    }
  }

 private:
  static bool is_lending(ActionKind kind) { return kind == ActionKind::gather || kind == ActionKind::release; }

  template <class Visit>
  void each_need_of_reduce(const Action& a, Visit&& visit) const {
    if (shape_.reduces_each) {
      visit(Action{ActionKind::backward_weight, a.unit, a.micro});
      if (a.micro > 0) visit(Action{ActionKind::reduce, a.unit, a.micro - 1});
      return;
    }
    for (int i = 0; i < shape_.micro; ++i) visit(Action{ActionKind::backward_weight, a.unit, i});
    if (a.unit == shape_.tie_owner)
      for (int i = 0; i < shape_.micro; ++i) visit(Action{ActionKind::backward_weight, shape_.tie_borrower, i});
  }

  std::vector<bool>::reference mark(const Action& a) {
    switch (a.kind) {
      case ActionKind::reduce:
        return reduced_[static_cast<std::size_t>(a.unit) * shape_.micro + std::max(0, a.micro)];
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
  std::vector<bool> phases_, reduced_, updated_, published_, whole_, normed_{false};
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
    if (const auto fault = walk.lending_fault(a)) return fmt::format("action {}, {}: {}", i, to_string(a), *fault);
    walk.run(a);
  }
  for (const Action& a : serial_step(shape))
    if (walk.is_missing(a)) return fmt::format("{} is missing", to_string(a));
  if (const auto unit = walk.still_whole()) return fmt::format("release({}) is missing", *unit);
  return std::nullopt;
}

}  // namespace lockstep
