// What a unit keeps from its forward to its backward.
#pragma once
#include "model/model.h"

namespace lockstep::tests {

// Bytes, what the unit was given included.
inline std::int64_t kept_bytes(const Model& model, int unit) {
  std::int64_t bytes = 0;
  for (const SlotSpec& slot : model.slots().all())
    if (slot.last.unit == unit && slot.born.phase == Phase::forward && slot.last.phase != Phase::forward)
      bytes += slot.shape.elements() * size_of(slot.dtype);
  return bytes;
}

}  // namespace lockstep::tests
