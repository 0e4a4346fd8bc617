// What of a block's activations is kept from its forward to its backward, and what is computed again instead.
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
  bool operator==(const MemorySpec&) const = default;

  // Of block `layer`. Where projections are computed again in some blocks, the others do the same with what is cheap.
  Recompute of_block(std::int64_t layer) const {
    const bool first_ones = recompute == Recompute::projections && recompute_blocks > 0;
    return first_ones && layer >= recompute_blocks ? Recompute::elementwise : recompute;
  }
};

}  // namespace lockstep
