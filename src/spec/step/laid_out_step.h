// What a step must do when the model is laid out over ranks: whether weights are published or gathered, how far ahead
// and which of them in one call, and gradients reduced once per step or after every micro-batch.
#pragma once
#include <cstdint>
#include <span>

#include "spec/layout/layout_spec.h"
#include "spec/step/actions.h"

namespace lockstep {

// The bytes that gathered weights take, by unit, and how many may stay from a forward to its backward. The last units
// stay first, as many as fit; with reshard = never all of them do.
struct GatheredRoom {
  std::span<const std::int64_t> unit_bytes;
  std::int64_t kept_bytes = 0;
  bool offloaded = false;  // weights are elsewhere between their uses: gathered on one rank too
};
StepShape laid_out(StepShape model, const LayoutSpec& layout, const GatheredRoom& room);

}  // namespace lockstep
