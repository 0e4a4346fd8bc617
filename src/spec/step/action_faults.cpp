// find_fault: walks a list of actions and checks of each that everything before it has run.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "spec/step/actions.h"

namespace lockstep {

namespace {

// Which actions have run, while a list is walked.
class Walk {
 public:
  explicit Walk(const StepShape& shape)
      : shape_(shape),
        work_(work_of(shape)),
        row_of_(static_cast<std::size_t>(shape.units) + 1, -1),
        whole_(static_cast<std::size_t>(shape.units), false) {
    int rows = 0;
    for (int u = -1; u < shape.units; ++u)
      if (u < 0 || shape.has(u) || shape.has_copy(u)) row_of_[static_cast<std::size_t>(u + 1)] = rows++;
    states_.assign(static_cast<std::size_t>(rows) * (static_cast<std::size_t>(ActionKind::receive_tied_weight) + 1) *
                       (static_cast<std::size_t>(shape.micro) + 1),
                   State::none);
    for (const Action& a : work_) states_[place(a)] = State::left;
  }

  bool in_range(const Action& a) const {
    if (a.unit < -1 || a.unit >= shape_.units || a.micro < -1 || a.micro >= shape_.micro) return false;
    if (row(a.unit) < 0) return false;
    if (is_lending(a.kind))
      return shape_.gathers && a.unit >= 0 && a.micro == -1 && (shape_.has(a.unit) || shape_.has_copy(a.unit));
    return state(a) != State::none;
  }
  // Once is enough: of all but gathers and releases.
  bool has_run(const Action& a) const { return state(a) == State::run; }
  void run(const Action& a) {
    if (is_lending(a.kind))
      whole_[static_cast<std::size_t>(a.unit)] = a.kind == ActionKind::gather;
    else
      states_[place(a)] = State::run;
  }
  std::optional<Action> first_left() const {
    for (const Action& a : work_)
      if (state(a) == State::left) return a;
    return std::nullopt;
  }

  // What is wrong with the unit's weights being whole, or not, now. At the end none are whole: all are updated.
  std::optional<std::string> lending_fault(const Action& a) const {
    if (!shape_.gathers) return std::nullopt;
    const bool moves = a.kind == ActionKind::update || a.kind == ActionKind::receive_tied_weight;
    const int moved = a.kind == ActionKind::receive_tied_weight ? shape_.tie_owner : a.unit;
    if (a.kind == ActionKind::gather && whole(a.unit)) return "it is whole already";
    if (a.kind == ActionKind::release && !whole(a.unit)) return "it is not whole";
    if (moves && whole(moved)) return "it is whole, and would be so with the old weights";
    if (a.kind == ActionKind::gather && has_moved(a.unit)) return "it has moved, and nothing more reads it";
    if (is_phase(a.kind))
      for (const int u : units_read(a, shape_))
        if (!whole(u)) return fmt::format("unit {} is not whole", u);
    return std::nullopt;
  }

  // What has to come before `a`, given to `visit`.
  template <class Visit>
  void each_need(const Action& a, Visit&& visit) const {
    const int u = a.unit, m = a.micro, last = shape_.last();
    switch (a.kind) {
      case ActionKind::forward:
        if (u > 0)
          visit(shape_.has(u - 1) ? Action{ActionKind::forward, u - 1, m} : Action{ActionKind::receive_input, u, m});
        if (u == last && m > 0) visit(Action{ActionKind::forward, u, m - 1});
        return;
      case ActionKind::backward_input:
        visit(Action{ActionKind::forward, u, m});
        if (u < last)
          visit(shape_.has(u + 1) ? Action{ActionKind::backward_input, u + 1, m}
                                  : Action{ActionKind::receive_output_gradient, u, m});
        return;
      case ActionKind::backward_weight:
        visit(Action{ActionKind::backward_input, u, m});
        if (m > 0) visit(Action{ActionKind::backward_weight, u, m - 1});
        return;
      case ActionKind::reduce:
        return each_need_of_reduce(a, visit);
      case ActionKind::norm:
        for (const Action& b : work_)
          if (b.kind == ActionKind::reduce || is_handed_on(b.kind) || b.kind == ActionKind::send_tied_gradient)
            visit(b);
        return;
      case ActionKind::update:
      case ActionKind::receive_tied_weight:
        visit(Action{ActionKind::norm});
        return;
      case ActionKind::send_tied_weight:
        visit(Action{ActionKind::update, u});
        return;
      case ActionKind::publish:
        visit(shape_.has(u) ? Action{ActionKind::update, u}
                            : Action{ActionKind::receive_tied_weight, shape_.tie_borrower});
        return;
      case ActionKind::send_output:
        visit(Action{ActionKind::forward, u, m});
        return;
      case ActionKind::send_input_gradient:
        visit(Action{ActionKind::backward_input, u, m});
        return;
      case ActionKind::send_tied_gradient:  // of all micro-batches, so after the last of these
        visit(shape_.reduces_each ? Action{ActionKind::reduce, u, shape_.micro - 1} : Action{ActionKind::reduce, u});
        return;
      case ActionKind::receive_tied_gradient:
      case ActionKind::receive_input:
      case ActionKind::receive_output_gradient:
      case ActionKind::gather:
      case ActionKind::release:
      case ActionKind::stash:
        return;
    }
  }

 private:
  enum class State : std::uint8_t { none, left, run };  // of what a step does once

  // By unit, of those that are here and none, kind and micro-batch, of which there may be none.
  int row(int unit) const { return row_of_[static_cast<std::size_t>(unit + 1)]; }
  std::size_t place(const Action& a) const {
    constexpr std::size_t kKinds = static_cast<std::size_t>(ActionKind::receive_tied_weight) + 1;
    return (static_cast<std::size_t>(row(a.unit)) * kKinds + static_cast<std::size_t>(a.kind)) *
               (static_cast<std::size_t>(shape_.micro) + 1) +
           static_cast<std::size_t>(a.micro + 1);
  }
  State state(const Action& a) const { return row(a.unit) < 0 ? State::none : states_[place(a)]; }
  static bool is_lending(ActionKind kind) { return kind == ActionKind::gather || kind == ActionKind::release; }
  bool whole(int unit) const { return whole_[static_cast<std::size_t>(unit)]; }
  bool has_moved(int unit) const {
    return has_run(shape_.has(unit) ? Action{ActionKind::update, unit}
                                    : Action{ActionKind::receive_tied_weight, shape_.tie_borrower});
  }

  template <class Visit>
  void each_need_of_reduce(const Action& a, Visit&& visit) const {
    const bool closes = !shape_.reduces_each || a.micro == shape_.micro - 1;
    if (shape_.reduces_each) {
      visit(Action{ActionKind::backward_weight, a.unit, a.micro});
      if (a.micro > 0) visit(Action{ActionKind::reduce, a.unit, a.micro - 1});
    } else {
      for (int i = 0; i < shape_.micro; ++i) visit(Action{ActionKind::backward_weight, a.unit, i});
    }
    if (!shape_.has_tie() || a.unit != shape_.tie_owner) return;
    if (shape_.tie_is_sent()) {
      if (closes) visit(Action{ActionKind::receive_tied_gradient, a.unit});
    } else if (shape_.reduces_each) {  // in one order, though each has a sum of its own
      visit(Action{ActionKind::reduce, shape_.tie_borrower, a.micro});
    } else {
      for (int i = 0; i < shape_.micro; ++i) visit(Action{ActionKind::backward_weight, shape_.tie_borrower, i});
    }
  }

  const StepShape& shape_;
  std::vector<Action> work_;
  std::vector<int> row_of_;  // by unit, none first; -1: it is elsewhere
  std::vector<State> states_;
  std::vector<bool> whole_;
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
  if (const auto left = walk.first_left()) return fmt::format("{} is missing", to_string(*left));
  return std::nullopt;
}

}  // namespace lockstep
