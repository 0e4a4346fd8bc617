// What is kept from a forward to its backward, and what is computed, or gathered, again instead.
//
// Nothing of this changes a result: what is computed again is the same bits.
#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class Recompute {
  none,         // everything is kept
  elementwise,  // outputs of norms and of the activation function are computed again: passes over memory, no product
  projections,  // and the projections into attention and into the feed-forward part: all but attention itself
};

constexpr std::string_view name_of(Recompute what) {
  return what == Recompute::none ? "none" : what == Recompute::elementwise ? "elementwise" : "projections";
}

struct MemorySpec {
  Recompute recompute = Recompute::none;
  std::int64_t recompute_blocks = 0;  // blocks, from the first, that compute projections again; 0 = all
  // MiB of gathered weights that may stay from the forward to the backward: as many units as fit, the last first
  std::int64_t gathered = 0;
  bool operator==(const MemorySpec&) const = default;

  // Of block `layer`. Where projections are computed again in some blocks, the others do the same with what is cheap.
  Recompute of_block(std::int64_t layer) const {
    const bool first_ones = recompute == Recompute::projections && recompute_blocks > 0;
    return first_ones && layer >= recompute_blocks ? Recompute::elementwise : recompute;
  }
};

}  // namespace lockstep
