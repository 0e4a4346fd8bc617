// The training step of one rank, as a list of actions.
//
// An action runs one phase (forward, backward-input or backward-weight) of one unit for one micro-batch, or moves data:
// gather and release a unit's weights, where each rank holds a shard of them; reduce its gradient over the ranks, once
// per step or after every micro-batch; take the norm of all gradients; update a unit's parameters; publish them to the
// ranks that did not update them. A pipeline stage is one or several runs of units, written out unit by unit, so that
// an action of one unit can come between those of two others.
//
// Where a unit's neighbour is on another stage, activations and their gradients are sent and received. A send or
// receive starts at its place in the list and runs beside what follows: a phase waits for what it reads, and a stage
// waits for the oldest of its kSendsInFlight pending messages to another. A weight shared by two units on different
// stages belongs to the first: the other has a copy, sends its reduced gradient there, and receives the updated weight.
//
// Pipelines without a flush (spec/pipeline/pipedream.h) have several versions of a stage's weights at a time: there a
// phase names the version that it computes with, stash keeps a copy of a unit's weights under the name of their version
// before an update makes the next one, and norm and update are of the micro-batch whose gradient they apply.
//
// Units that are frozen have a forward, and a backward_input where something below them is trained, and nothing else.
//
// The list is executed in order. find_fault() proves, before anything runs, that a list is complete, reads nothing
// before it is written, and sums in the fixed order; spec/step/world_faults.h proves that the lists of all ranks fit
// each other. Activations get their places by lifetime over the same list, so any list that passes can be run as it is.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/layout/stages.h"

namespace lockstep {

inline constexpr int kSendsInFlight = 2;  // from a stage to another

enum class ActionKind : std::uint8_t {
  forward,
  backward_input,
  backward_weight,
  gather,
  release,
  reduce,
  norm,
  update,
  publish,
  stash,
  // Between stages, of the unit that is here: to and from the next unit and the one before it.
  send_output,
  receive_output_gradient,
  receive_input,
  send_input_gradient,
  // Of a tied weight: from the unit that borrows it to the one that owns it, and back.
  send_tied_gradient,
  receive_tied_gradient,
  send_tied_weight,
  receive_tied_weight,
};
constexpr bool is_phase(ActionKind kind) { return kind <= ActionKind::backward_weight; }
constexpr bool is_send(ActionKind kind) {
  return kind == ActionKind::send_output || kind == ActionKind::send_input_gradient ||
         kind == ActionKind::send_tied_gradient || kind == ActionKind::send_tied_weight;
}
constexpr bool is_receive(ActionKind kind) { return kind >= ActionKind::send_output && !is_send(kind); }
// Of an activation, which is one micro-batch's.
constexpr bool is_handed_on(ActionKind kind) {
  return kind >= ActionKind::send_output && kind <= ActionKind::send_input_gradient;
}

inline constexpr int kCurrentWeights = std::numeric_limits<int>::min();

struct Action {
  ActionKind kind;
  int unit = -1;                  // none for norm
  int micro = -1;                 // of the three phases, what they hand on, and a reduce that is of one micro-batch
  int version = kCurrentWeights;  // of the weights that a phase computes with, or that an update makes or a stash keeps
  bool operator==(const Action&) const = default;
};

std::string_view name_of(ActionKind kind);
std::string to_string(const Action& action);  // "forward(3, 0)", "reduce(3)", "norm"

// What a step must do, whatever its order.
struct StepShape {
  int units = 1;  // in the order of the forward pass; the last one's forward already adds weight gradients
  int micro = 1;  // micro-batches
  // A tied parameter: the borrower's gradient joins the owner's in reduce(owner). -1: nothing is tied.
  int tie_owner = -1, tie_borrower = -1;
  bool publishes = false;     // not every rank updates all it computes with
  bool reduces_each = false;  // the gradients of every micro-batch by themselves: reduce(u, m), not reduce(u)
  bool gathers = false;       // a unit's weights are whole between a gather and a release only
  int kept_units = 0;  // of those: how many before the last stay whole from a micro-batch's forward to its backward
  int prefetch = 1;    // of those: bundles that are gathered ahead of the phase that reads them
  std::vector<int> bundles = {};  // by unit: the first unit of its bundle (spec/layout/wrap_rule.h); empty: its own
  std::vector<bool> frozen = {};  // by unit: nothing of it is trained; empty: everything is
  Stages stages = {};
  int stage = 0;  // whose list it is

  int last() const { return units - 1; }
  int stage_of(int unit) const { return stages.of(unit); }
  bool has(int unit) const { return stage_of(unit) == stage; }
  int bundle_of(int unit) const { return bundles.empty() ? unit : bundles[static_cast<std::size_t>(unit)]; }
  bool trains(int unit) const { return frozen.empty() || !frozen[static_cast<std::size_t>(unit)]; }
  // Whether anything needs the input phase of the unit: itself, or one before it that is trained.
  bool goes_back(int unit) const {
    for (int u = 0; u <= unit; ++u)
      if (trains(u)) return true;
    return false;
  }
  bool has_tie() const { return tie_owner >= 0; }
  // Across stages: the borrower has a copy of the weight; and it sends its gradient and receives the updated weight.
  bool tie_is_apart() const { return has_tie() && stage_of(tie_owner) != stage_of(tie_borrower); }
  bool tie_is_sent() const { return tie_is_apart() && trains(tie_owner); }
  // The owner of a tied weight whose borrower is here: a copy of it.
  bool has_copy(int unit) const { return tie_is_apart() && unit == tie_owner && has(tie_borrower); }
  // From another stage, and to one.
  bool comes(int unit) const { return unit > 0 && stage_of(unit - 1) != stage_of(unit); }
  bool goes(int unit) const { return unit < last() && stage_of(unit + 1) != stage_of(unit); }
};

// The stage at the other end of a message.
int other_end(const Action& action, const StepShape& shape);
// By action: where in the list the rank knows that what it sends there has been taken, and may be written over; of what
// sends nothing, its own place. The end of the list where nothing waits for it before.
std::vector<std::size_t> sent_by(const std::vector<Action>& actions, const StepShape& shape);

// The units whose weights a phase reads: its own, and the tie's owner where the borrower computes. Nothing reads
// weights to make their gradient, and the first unit has no input to make a gradient of.
std::vector<int> units_read(const Action& phase, const StepShape& shape);

// One stage, one micro-batch after the other: forwards, then both backwards of each unit, the last unit first. A unit
// is reduced as soon as its gradient is whole, and that of its bundle is. Where weights are gathered, those of the
// phases that are next to need others (as many as `prefetch`) are gathered before the phase at hand runs, so that they
// can come meanwhile; nothing is whole longer than these need it, but for the units that are kept.
std::vector<Action> serial_step(const StepShape& shape);
// The forwards alone, for evaluation.
std::vector<Action> forward_pass(const StepShape& shape);

// Whether an action and the one after it go in one call: gathers, or reductions, of units of one bundle.
bool goes_with_next(const std::vector<Action>& actions, std::size_t index, const StepShape& shape);

// Everything that a step of this shape does once, in no order: all but gathers and releases.
std::vector<Action> work_of(const StepShape& shape);

// The first reason why the list is not a step of this shape, or nothing. A step runs every phase of every unit of its
// stage and micro-batch once, reduces and updates every unit once and takes one norm, less what frozen units do not
// need, such that
//   forward(u, m)          comes after forward(u-1, m); of the last unit, after forward(u, m-1) too
//   backward_input(u, m)   after forward(u, m) and backward_input(u+1, m)
//                          (or, of units of other stages, after what they make was received)
//   backward_weight(u, m)  after backward_input(u, m) and backward_weight(u, m-1): sums over micro-batches ascend
//   reduce(u)              after every backward_weight(u, m), and of a tie's owner, every one of the borrower
//   reduce(u, m)           after backward_weight(u, m) and reduce(u, m-1), where micro-batches are reduced apart; of a
//                          tie's owner, after the borrower's too, which begins the sum
//   norm                   after every reduce, and everything that is handed on
//   update(u)              after norm, and so does the receive of a tied weight
//   publish(u)             after update(u); in steps that publish, once for every unit, and in others never
//   sends                  after what makes the tensor: forward(u, m), backward_input(u, m), of a tied gradient the
//                          borrower's last reduce, of a tied weight update(u); and the owner's last reduce after the
//                          receive of the gradient
//   gather(u), release(u)  in turn, and never over an update(u); a phase runs while all units that it reads are whole
std::optional<std::string> find_fault(const std::vector<Action>& actions, const StepShape& shape);

}  // namespace lockstep
