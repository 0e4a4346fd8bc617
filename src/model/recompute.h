// Recomputation (activation checkpointing): which activations a block keeps from its forward to its backward, and which
// its backward computes a second time instead.
//
// The run file chooses a level, [memory] recompute (spec/run/memory_spec.h). What a block does with each activation:
//
//                                        none    elementwise          projections                  full
//   outputs of the two norms             kept    by norm backward     before backward              by the forward again
//   output of the activation function    kept    by its backward      by its backward              by its backward
//   queries, keys, values; gate and up   kept    kept                 one more product each        by the forward again
//   everything else                      kept    kept                 kept                         by the forward again
//   the block's input                    kept    kept                 kept                         kept
//
// "Everything else" is the sum after attention, attention's output with its log-sum-exps, and the norms' statistics:
// only "full" computes attention twice. Its backward begins with the forward, up to the projection into the
// feed-forward part: what follows is nothing that a gradient needs. In a Llama block of 16-bit activations, per token:
//
//   none          4·2C + 2·4 + 2(H + 2K)D + 2HD + 4H + 6F   bytes
//   elementwise   none − 2·2C − 2F                            no product more, a write more in each backward
//   projections   elementwise − 2(H + 2K)D − 4F               about a third of a block's forward products more
//   full          2C                                          a forward more, without its last product
//
// Of "projections" and "full" some blocks may be chosen, and the others do "elementwise": the first ones, whose
// activations live longest, of the model or of each stage, and of those every n-th. A recomputed activation is equal
// bit for bit to the first one: the same kernels run on the same inputs, and dropout's masks are functions of counters,
// so no level changes a result. It has a slot of its own, whose life begins in the backward-input phase
// (model/slots.h).
#pragma once
#include <span>

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
  bool forward_again = false;     // what is kept, as told above, is kept from the forward's second run on

  bool keeps_norm_outputs() const { return norm_outputs == NormOutputs::kept; }
};

// The level of block `layer`, the first being 0. `stage_of`: the stage of each block; empty: there is one.
Recompute recompute_level(const MemorySpec& memory, std::int64_t layer, std::span<const int> stage_of = {});
// What that level keeps.
BlockRecompute block_recompute(Recompute level);
// Whether what block `layer` keeps is offloaded until its backward (model/slots.h): of each stage the first blocks,
// whose activations wait longest.
bool offloads_activations(const MemorySpec& memory, std::int64_t layer, std::span<const int> stage_of = {});

}  // namespace lockstep
