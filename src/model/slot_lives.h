// When slots live, told by a list of actions: what StepActivations finds places by (model/slots.h).
//
// The list is cut into flights, wherever no micro-batch is in flight. Within one, moments are counted by what happens:
// a phase, something handed to or from another stage, or that what was sent has been taken; each has two halves.
//
// A slot that is offloaded has two lives, with an absence between them. It is copied out after its unit's forward,
// while the next phase runs, and its first life ends with that phase. It is brought back during the two phases (those
// of one unit's backward) before its unit's input phase, and its second life begins with the first of them. Where no
// whole phase would pass in between, nothing is gained: it stays, in one life.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <vector>

#include "model/slots.h"
#include "spec/step/actions.h"

namespace lockstep {

// What can happen to a micro-batch in a unit, as a number: a phase, or something handed on, or, of what was sent, that
// it has been taken.
constexpr int kSlotEvents = 9;
constexpr int slot_event(ActionKind kind) {
  return static_cast<int>(kind) - (is_phase(kind) ? 0 : static_cast<int>(ActionKind::send_output) - 3);
}
constexpr int slot_event(Phase phase) { return static_cast<int>(phase); }

// Of one micro-batch: a phase, or what it hands on.
inline bool is_of_a_micro(const Action& a) { return is_phase(a.kind) || is_handed_on(a.kind); }

// Something that happens: to which micro-batch (in a flight: to which place of it), in which unit, and what.
struct SlotHappening {
  int place, unit, event;
  auto operator<=>(const SlotHappening&) const = default;
};

// Micro-batches that are in flight together, in the order they begin, and what happens to them in order.
struct Flight {
  std::vector<int> micros;
  std::vector<SlotHappening> all;
  std::vector<std::size_t> actions;  // by happening: the action that it is, or before which it has happened
};
std::vector<Flight> flights_of(const std::vector<Action>& actions, const StepShape& shape);

// When everything of a flight happens.
class FlightMoments {
 public:
  FlightMoments(const Flight& flight, int units);
  // -1: it never does.
  std::int64_t of(int place, int unit, int event) const;
  // The first phase after a happening, and the n-th phase before one, or the flight's first.
  std::int64_t phase_after(std::int64_t happening) const;
  std::int64_t phase_before(std::int64_t happening, std::int64_t n) const;

 private:
  using Events = std::array<std::int64_t, kSlotEvents>;
  std::size_t row(int place, int unit) const;

  std::size_t places_;
  std::vector<int> row_of_;  // by unit; -1: nothing happens in it
  std::vector<Events> when_;
  std::vector<std::int64_t> phases_;  // happenings that are phases
};

// In halves of happenings.
struct SlotLife {
  std::int64_t begin = -1, end = -1;  // -1: it is never written
};
SlotLife life_of(const SlotSpec& slot, int place, const FlightMoments& moments);

// Of a slot that may be offloaded, in happenings.
struct SlotAbsence {
  std::int64_t out = -1;  // the forward after which it is copied out; -1: it stays
  std::int64_t left;      // the phase with whose end it is gone
  std::int64_t coming;    // the phase with whose beginning it begins to come
  std::int64_t back;      // the input phase before which it is there
  bool happens() const { return out >= 0; }
};
SlotAbsence absence_of(const SlotSpec& slot, int place, const FlightMoments& moments);

}  // namespace lockstep
