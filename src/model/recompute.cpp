#include "model/recompute.h"

#include <algorithm>

namespace lockstep {

namespace {
// Where a block is: its stage, and how many blocks of that come before it.
struct PlaceInStage {
  int stage = 0;
  std::int64_t index = 0;
};
PlaceInStage place_in_stage(std::int64_t layer, std::span<const int> stage_of) {
  if (stage_of.empty()) return {.index = layer};
  const int stage = stage_of[static_cast<std::size_t>(layer)];
  return {stage, std::ranges::count(stage_of.first(static_cast<std::size_t>(layer)), stage)};
}
}  // namespace

Recompute recompute_level(const MemorySpec& memory, std::int64_t layer, std::span<const int> stage_of) {
  if (!recomputes_products(memory.recompute)) return memory.recompute;
  std::int64_t index = layer;  // among the blocks that a number of them counts
  bool chosen = memory.recompute_blocks == 0 || layer < memory.recompute_blocks;
  if (!memory.recompute_stages.empty()) {
    const PlaceInStage at = place_in_stage(layer, stage_of);
    index = at.index;
    chosen = index < memory.recompute_stages.counts[static_cast<std::size_t>(at.stage)];
  }
  return chosen && index % memory.recompute_every == 0 ? memory.recompute : Recompute::elementwise;
}

bool offloads_activations(const MemorySpec& memory, std::int64_t layer, std::span<const int> stage_of) {
  if (memory.offload_activations == Offload::none) return false;
  return memory.offload_blocks == 0 || place_in_stage(layer, stage_of).index < memory.offload_blocks;
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
