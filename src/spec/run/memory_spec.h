// Which activations and gathered weights a run keeps from the forward to the backward ([memory] in the run file).
//
// Nothing of this changes a result: what is recomputed is equal bit for bit. model/recompute.h says what each level
// keeps of a block, and what that costs.
#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class Recompute {
  none,         // everything is kept
  elementwise,  // outputs of norms and of the activation function are recomputed: passes over memory, no product
  projections,  // and the projections into attention and into the feed-forward part: all but attention itself
};

constexpr std::string_view name_of(Recompute what) {
  return what == Recompute::none ? "none" : what == Recompute::elementwise ? "elementwise" : "projections";
}

struct MemorySpec {
  Recompute recompute = Recompute::none;
  std::int64_t recompute_blocks = 0;  // blocks, from the first, that recompute projections; 0 = all
  // MiB of gathered weights that may stay from the forward to the backward: as many units as fit, the last first
  std::int64_t gathered = 0;
  bool operator==(const MemorySpec&) const = default;
};

}  // namespace lockstep
