// Recomputation (activation checkpointing): which activations a block keeps from its forward to its backward, and which
// its backward computes a second time instead.
//
// The run file chooses a level, [memory] recompute (spec/run/memory_spec.h). What a block does with each activation:
//
//                                        none    elementwise          projections
//   outputs of the two norms             kept    by norm backward     before backward
//   output of the activation function    kept    by its backward      by its backward
//   queries, keys, values; gate and up   kept    kept                 recomputed: one more product each
//   everything else                      kept    kept                 kept
//
// "Everything else" is the block's input, the sum after attention, attention's output with its log-sum-exps, and the
// norms' statistics: attention itself is never recomputed. In a Llama block of 16-bit activations, per token:
//
//   none          4·2C + 2·4 + 2(H + 2K)D + 2HD + 4H + 6F   bytes
//   elementwise   none − 2·2C − 2F                            no product more, a write more in each backward
//   projections   elementwise − 2(H + 2K)D − 4F               about a third of a block's forward products more
//
// With recompute_blocks = n > 0, "projections" is for the first n blocks, whose activations live longest; the others do
// "elementwise". A recomputed activation is equal bit for bit to the first one: the same kernels run on the same
// inputs, so no level changes a result. It has a slot of its own, whose life begins in the backward-input phase
// (model/slots.h).
#pragma once
#include "spec/run/memory_spec.h"

namespace lockstep {

// How a block's backward gets the outputs of its norms.
enum class NormOutputs {
  kept,
  by_norm_backward,  // the norm's own backward writes them on its way: weight products need them, nothing before does
  before_backward,   // first of all in the input phase: the recomputed projections read them
};

struct BlockRecompute {
  NormOutputs norm_outputs = NormOutputs::kept;
  bool keeps_activation = true;   // the activation function's output
  bool keeps_projections = true;  // queries, keys and values; gate and up

  bool keeps_norm_outputs() const { return norm_outputs == NormOutputs::kept; }
};

// The level of block `layer`, the first being 0.
Recompute recompute_level(const MemorySpec& memory, std::int64_t layer);
// What that level keeps.
BlockRecompute block_recompute(Recompute level);

}  // namespace lockstep
