// Activations by slot: units declare what they keep and for how long; offsets are found once, at set-up.
//
// A slot's life is told in phases of units: born in (unit, phase), needed last in (unit, phase), of each micro-batch. A
// phase may have two halves (a block's attention and its feed-forward part, unless each is a unit): what only one of
// them needs says so. Given the list of actions, two slots that never live together share bytes, and nothing is
// allocated while training. What a weight phase needs stays after the input phase has freed the rest, wherever the list
// puts it. What is sent to another stage lives until it has been sent; on the receiving stage, from when the receive
// starts.
//
// A slot whose contents are recomputed has two lives, each a slot with a place of its own: one within the forward, one
// from the input phase on. Code that runs in both finds the right one through PhaseActivations. So has a slot that is
// offloaded between its unit's forward and backward (model/slot_lives.h says from when to when): moves() says what is
// to be copied between the two places and a third, elsewhere, and StepExecutor has that done.
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

// What a slot has rows of: all tokens of the micro-batch that are here, those that are this rank's between products, or
// something else (a sum, a tile). Without padding (Execution::varlen) a micro-batch may have fewer tokens than there is
// room for.
enum class SlotRows : std::uint8_t { fixed, tokens, own };

// How many tokens a micro-batch has here, and how many there is room for; of `own` rows too.
struct RowExtent {
  std::int64_t tokens = 1, room = 1;
  std::int64_t own = 1, own_room = 1;
};

// Of a slot that is elsewhere between its unit's forward and backward, where the list gives it time: its two lives.
enum class SlotOffload : std::uint8_t { none, goes, comes_back };

struct SlotSpec {
  std::string name;
  DType dtype;
  Shape shape;
  Moment born;
  Moment last;
  Half born_half = Half::first;
  Half last_half = Half::second;
  SlotOffload offload = SlotOffload::none;
  bool handed_on = true;  // from a stage to another; else whoever needs it there goes without
  SlotRows rows = SlotRows::fixed;
  int rows_dim = 0;  // of the shape: as many as there are tokens, or a multiple or a fraction of them

  SlotSpec of(SlotRows what, int dim = 0) && {
    rows = what, rows_dim = dim;
    return std::move(*this);
  }
};

class Slots {
 public:
  Slot add(SlotSpec spec);
  // One with two lives, which a unit writes in its forward for itself: the first ends with the forward; the second
  // begins in the first half of the input phase and ends when the spec says, or, of what the forward alone needs, in
  // that half.
  Slot add_twice(SlotSpec spec);
  // One that the backward of unit spec.last.unit reads, and that is offloaded until then: the second life begins when
  // it is brought back.
  Slot add_offloaded(SlotSpec spec);
  // Bytes that the layers of a unit use one after the other in half of a phase, each for itself: as many as any of them
  // asks for. By the same name it is the same slot.
  Slot add_scratch(const std::string& name, std::int64_t bytes, Moment when, Half half);
  // Where a unit's forward runs a second time, it finds `second` in the place of `first`.
  void find_again(Slot first, Slot second) { again_[static_cast<std::size_t>(first)] = second; }
  // Bytes to which places are rounded, and at whose multiples they begin: those of memory, or of what they are copied
  // to.
  std::int64_t alignment() const { return alignment_; }
  void align_to(std::int64_t bytes) { alignment_ = bytes; }
  // From now on a phase has one part: where it is half of a block's, what its layers say of halves is of no use.
  void make_phases_whole() { phases_are_whole_ = true; }
  const std::vector<SlotSpec>& all() const { return slots_; }
  const std::vector<Slot>& again() const { return again_; }  // by slot: its second life, or itself

 private:
  std::vector<SlotSpec> slots_;
  std::vector<Slot> again_;
  std::int64_t alignment_ = kAlignment;
  bool phases_are_whole_ = false;
};

// One micro-batch's activations: a tensor for each slot; none for one that is never written.
class Activations {
 public:
  // What all micro-batches of a step share: the bytes, and of each slot its type and shape.
  struct Room {
    struct Kind {
      DType dtype;
      Shape shape;
      SlotRows rows;
      int rows_dim;
      Shape shape_of(const RowExtent& extent) const;
    };
    Buffer buffer;
    std::int64_t begin = 0;  // the byte of it where places begin
    std::vector<Kind> kinds;
    std::vector<int> kind_of;  // by slot; -1: no unit that is here has it
    std::vector<Slot> again;   // Slots::again
  };

  Activations() = default;
  // By kind: the byte after Room::begin where it begins; -1: nowhere.
  Activations(std::shared_ptr<const Room> room, std::vector<std::int64_t> offsets)
      : room_(std::move(room)), offsets_(std::move(offsets)) {}

  // With the rows of a micro-batch; without an extent, with all there is room for.
  Tensor at(Slot slot, const RowExtent& extent) const {
    if (slot < 0) return {};
    const int kind = room_->kind_of[static_cast<std::size_t>(slot)];
    const std::int64_t offset = kind < 0 ? -1 : offsets_[static_cast<std::size_t>(kind)];
    if (offset < 0) return {};
    const Room::Kind& of = room_->kinds[static_cast<std::size_t>(kind)];
    return view(room_->buffer, of.dtype, of.shape_of(extent), (room_->begin + offset) / size_of(of.dtype));
  }
  Tensor operator[](Slot slot) const { return at(slot, {}); }
  Slot again(Slot slot) const { return slot < 0 ? slot : room_->again[static_cast<std::size_t>(slot)]; }

 private:
  std::shared_ptr<const Room> room_;
  std::vector<std::int64_t> offsets_;
};

// One micro-batch's activations as a phase sees them: with as many rows as it has tokens; in their first lives, or,
// after again(), in their second where they have one. The activations outlive it.
class PhaseActivations {
 public:
  PhaseActivations(const Activations& all, const RowExtent& extent = {})  // NOLINT: implicit on purpose
      : all_(&all), extent_(extent) {}

  Tensor operator[](Slot slot) const { return all_->at(again_ ? all_->again(slot) : slot, extent_); }
  PhaseActivations again() const {
    PhaseActivations second = *this;
    second.again_ = true;
    return second;
  }

 private:
  const Activations* all_;
  RowExtent extent_;
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

  // For a step whose list is one turn of many that overlap (spec/pipeline/pipedream.h): `turn` has as many
  // micro-batches as are in flight at a time, all forwards before all backwards. Each micro-batch of it has places of
  // its own for whatever lives while another one computes or is on its way, so that they can be used in turn.
  struct InTurn {
    std::vector<Action> actions;
    StepShape shape;
  };
  StepActivations(const Slots& slots, const InTurn& turn, const std::vector<Action>& forwards, const StepShape& shape,
                  Memory& memory);

  const Activations& of(int micro) const { return step_.of(micro); }
  const Activations& of_forwards(int micro) const { return forwards_.of(micro); }

  // What the step's list moves out of the buffer and back into it. The forwards move nothing.
  struct Move {
    bool out;                // else back
    std::size_t begin, end;  // indices of actions: it may begin before the one, and is done before the other
    Tensor here;             // flat
    std::int64_t elsewhere;  // the byte where it begins there
  };
  const std::vector<Move>& moves() const { return moves_; }
  std::int64_t elsewhere_bytes() const { return elsewhere_bytes_; }

 private:
  void set_up(const Slots& slots, const InTurn& step, bool in_turn, const std::vector<Action>& forwards,
              const StepShape& shape, Memory& memory);

  struct OfList {
    std::vector<Activations> places;
    std::vector<int> place_of;  // for each micro-batch, its index in places
    const Activations& of(int micro) const { return places[place_of[micro]]; }
  };

  OfList step_, forwards_;
  std::vector<Move> moves_;
  std::int64_t elsewhere_bytes_ = 0;
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
