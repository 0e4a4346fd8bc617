#include "model/recompute.h"

#include <algorithm>

namespace lockstep {

Recompute recompute_level(const MemorySpec& memory, std::int64_t layer, std::span<const int> stage_of) {
  if (!recomputes_products(memory.recompute)) return memory.recompute;
  std::int64_t index = layer;  // among the blocks that a number of them counts
  bool chosen = memory.recompute_blocks == 0 || layer < memory.recompute_blocks;
  if (!memory.recompute_stages.empty()) {
    const auto before = stage_of.first(static_cast<std::size_t>(stage_of.empty() ? 0 : layer));
    const int stage = stage_of.empty() ? 0 : stage_of[static_cast<std::size_t>(layer)];
    if (!stage_of.empty()) index = std::ranges::count(before, stage);
    chosen = index < memory.recompute_stages.counts[static_cast<std::size_t>(stage)];
  }
  return chosen && index % memory.recompute_every == 0 ? memory.recompute : Recompute::elementwise;
}

BlockRecompute block_recompute(Recompute level) {
  switch (level) {
    case Recompute::none:
      break;
    case Recompute::elementwise:
      return {.norm_outputs = NormOutputs::by_norm_backward, .keeps_activation = false};
    case Recompute::projections:
      return {.norm_outputs = NormOutputs::before_backward, .keeps_activation = false, .keeps_projections = false};
    case Recompute::full:
      return {.keeps_activation = false, .forward_again = true};
  }
  return {};
}

}  // namespace lockstep
