// What is kept from a forward to its backward, and what is recomputed, or gathered again, instead.
//
// No setting here changes a result: what is recomputed is equal bit for bit.
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

  // Of block `layer`. Where some blocks recompute projections, the others recompute what is cheap.
  Recompute of_block(std::int64_t layer) const {
    const bool first_ones = recompute == Recompute::projections && recompute_blocks > 0;
    return first_ones && layer >= recompute_blocks ? Recompute::elementwise : recompute;
  }
};

}  // namespace lockstep
