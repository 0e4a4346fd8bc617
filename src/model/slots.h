// Activations by slot: units declare what they keep and for how long; offsets are found once, at set-up.
//
// A slot's life is told in phases of units: born in (unit, phase), needed last in (unit, phase), of each micro-batch. A
// phase may have two halves (a block's attention and its feed-forward part): what only one of them needs says so. Given
// the list of actions, two slots that never live together share bytes, and nothing is allocated while training. What a
// weight phase needs stays after the input phase has freed the rest, wherever the list puts it. What is sent to
// another stage lives until it has been sent; on the receiving stage, from when the receive starts.
//
// A slot whose contents are recomputed has two lives, each a slot with a place of its own: one within the forward, one
// from the input phase on. Code that runs in both finds the right one through PhaseActivations.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "spec/step/actions.h"
#include "tensor/memory.h"
#include "tensor/tensor.h"

namespace lockstep {

enum class Phase : std::uint8_t { forward, input, weight };  // forward, backward-input, backward-weight

// A phase of a unit.
struct Moment {
  int unit;
  Phase phase;
  bool operator==(const Moment&) const = default;
};

using Slot = int;

enum class Half : std::uint8_t { first, second };

struct SlotSpec {
  std::string name;
  DType dtype;
  Shape shape;
  Moment born;
  Moment last;
  Half born_half = Half::first;
  Half last_half = Half::second;
};

class Slots {
 public:
  Slot add(SlotSpec spec);
  // One with two lives, which a unit writes in its forward for itself: the first ends with the forward; the second
  // begins in the first half of the input phase and ends when the spec says, or, of what the forward alone needs, in
  // that half.
  Slot add_twice(SlotSpec spec);
  const std::vector<SlotSpec>& all() const { return slots_; }
  const std::vector<Slot>& again() const { return again_; }  // by slot: its second life, or itself

 private:
  std::vector<SlotSpec> slots_;
  std::vector<Slot> again_;
};

// One micro-batch's activations: a tensor for each slot; none for one that is never written.
class Activations {
 public:
  // What all micro-batches of a step share: the bytes, and of each slot its type and shape.
  struct Room {
    struct Kind {
      DType dtype;
      Shape shape;
    };
    Buffer buffer;
    std::vector<Kind> kinds;
    std::vector<int> kind_of;  // by slot; -1: no unit that is here has it
    std::vector<Slot> again;   // Slots::again
  };

  Activations() = default;
  // By kind: the byte in the buffer where it begins; -1: nowhere.
  Activations(std::shared_ptr<const Room> room, std::vector<std::int64_t> offsets)
      : room_(std::move(room)), offsets_(std::move(offsets)) {}

  Tensor operator[](Slot slot) const {
    const int kind = room_->kind_of[static_cast<std::size_t>(slot)];
    const std::int64_t offset = kind < 0 ? -1 : offsets_[static_cast<std::size_t>(kind)];
    if (offset < 0) return {};
    const auto& [dtype, shape] = room_->kinds[static_cast<std::size_t>(kind)];
    return view(room_->buffer, dtype, shape, offset / size_of(dtype));
  }
  Tensor again(Slot slot) const { return (*this)[room_->again[static_cast<std::size_t>(slot)]]; }

 private:
  std::shared_ptr<const Room> room_;
  std::vector<std::int64_t> offsets_;
};

// One micro-batch's activations as a phase sees them: in their first lives, or, after again(), in their second where
// they have one. The activations outlive it.
class PhaseActivations {
 public:
  PhaseActivations(const Activations& all) : all_(&all) {}  // NOLINT: implicit on purpose

  Tensor operator[](Slot slot) const { return again_ ? all_->again(slot) : (*all_)[slot]; }
  PhaseActivations again() const {
    PhaseActivations second = *this;
    second.again_ = true;
    return second;
  }

 private:
  const Activations* all_;
  bool again_ = false;
};

// The activations of every micro-batch of a step, in one buffer.
class StepActivations {
 public:
  StepActivations() = default;
  // Takes the bytes that this list of actions needs, of a step of this shape or its forwards. A phase that is not in
  // the list never runs: slots live only as long as they are used. Micro-batches that are never in flight together lie
  // in the same places.
  StepActivations(const Slots& slots, const std::vector<Action>& actions, const StepShape& shape, Memory& memory)
      : StepActivations(slots, actions, {}, shape, memory) {}
  // For two lists that are never run at once, over the same bytes: a step, and its forwards in an order of their own,
  // in which others are in flight together.
  StepActivations(const Slots& slots, const std::vector<Action>& actions, const std::vector<Action>& forwards,
                  const StepShape& shape, Memory& memory);

  const Activations& of(int micro) const { return step_.of(micro); }
  const Activations& of_forwards(int micro) const { return forwards_.of(micro); }

 private:
  struct OfList {
    std::vector<Activations> places;
    std::vector<int> place_of;  // for each micro-batch, its index in places
    const Activations& of(int micro) const { return places[place_of[micro]]; }
  };

  OfList step_, forwards_;
};

// By action of the list: the bytes of the places of slots that live while it runs, of which StepActivations finds
// places for the most. An action that is no phase has what lives from the phase before it to the next one.
std::vector<std::int64_t> live_bytes(const Slots& slots, const std::vector<Action>& actions, const StepShape& shape);

// The slots that live while one action of the list runs: together they have its live_bytes.
struct LiveSlot {
  Slot slot;
  int micro;
  std::int64_t bytes;
};
std::vector<LiveSlot> live_slots(const Slots& slots, const std::vector<Action>& actions, const StepShape& shape,
                                 std::size_t action);

}  // namespace lockstep
