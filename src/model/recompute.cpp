#include "model/recompute.h"

namespace lockstep {

Recompute recompute_level(const MemorySpec& memory, std::int64_t layer) {
  const bool first_blocks_only = memory.recompute == Recompute::projections && memory.recompute_blocks > 0;
  return first_blocks_only && layer >= memory.recompute_blocks ? Recompute::elementwise : memory.recompute;
}

BlockRecompute block_recompute(Recompute level) {
  switch (level) {
    case Recompute::none:
      break;
    case Recompute::elementwise:
      return {.norm_outputs = NormOutputs::by_norm_backward, .keeps_activation = false};
    case Recompute::projections:
      return {.norm_outputs = NormOutputs::before_backward, .keeps_activation = false, .keeps_projections = false};
  }
  return {};
}

}  // namespace lockstep
