// Training with compressed gradients, weights or activations as one plain program: no ranks, no messages, no buffers, a
// loop over workers.
//
// Each worker's gradient comes from a model of one rank that is given the worker's samples. Context-parallel ranks are
// workers that share samples, each with the gradient of what its part of the tokens contributes; these parts come from
// as many ranks without compression, whose sum is left out. Where the layout has
// another stage after a unit, each row that it hands on is replaced by what would be sent of it, and each row of the
// gradient that comes back. What is done with gradients, from the compression to AdamW, is written here in doubles from
// the definitions in docs/compression.md and shares nothing with the library. Runs are fp64. Where rounding alone
// decides what is sent (the sign of a gradient that is truly zero, a tie that the last bits of a residual break), no
// model can follow; the tests keep away from that.
#pragma once
#include "support/learning_ranks.h"

namespace lockstep::tests {

// What a list of numbers is replaced by: one parameter, or a part of it that begins a block.
std::vector<double> plain_compressed(const Compression& form, const std::vector<double>& v);

// What `learn` of these options is to learn, in as many steps. Layout: dp, cp, tp, micro, zero, grad_sync, and where
// stages end; all of it where only activations are compressed. `owed`: what compression has left out by then, of all
// workers together, in the order of the tensors.
Learned learn_serially(const Replica::Options& options, int steps, std::vector<double>* owed = nullptr);

}  // namespace lockstep::tests
