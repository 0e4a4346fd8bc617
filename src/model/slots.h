// Activations by slot: units declare what they keep and for how long; offsets are found once, at set-up.
//
// A slot's life is told in phases of units: born in (unit, phase), needed last in (unit, phase). Given the order in
// which the phases run, two slots that never live together share bytes, and nothing is allocated while training. What a
// weight phase needs stays after the input phase has freed the rest, wherever the schedule puts it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/memory.h"
#include "tensor/tensor.h"

namespace lockstep {

enum class Phase : std::uint8_t { forward, input, weight };  // forward, backward-input, backward-weight

// One call in the order of a step: a phase of a unit.
struct Moment {
  int unit;
  Phase phase;
  bool operator==(const Moment&) const = default;
};

using Slot = int;

struct SlotSpec {
  std::string name;
  DType dtype;
  Shape shape;
  Moment born;
  Moment last;
};

class Slots {
 public:
  Slot add(SlotSpec spec);
  const std::vector<SlotSpec>& all() const { return slots_; }

 private:
  std::vector<SlotSpec> slots_;
};

// One micro-batch's activations: a tensor for each slot.
class Activations {
 public:
  Activations() = default;
  // Takes the bytes that this order of phases needs. A phase that is not in the order never runs: slots live only as
  // long as they are used.
  Activations(const Slots& slots, const std::vector<Moment>& order, Memory& memory);

  const Tensor& operator[](Slot slot) const { return tensors_[slot]; }

 private:
  Buffer buffer_;
  std::vector<Tensor> tensors_;
};

}  // namespace lockstep
