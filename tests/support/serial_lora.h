// LoRA as one plain program: merged weights, and the chain rule, in loops over doubles.
//
// The gradient of whole weights comes from a model of one rank without adapters, which is given W + (alpha/rank) · B ·
// A made here. What A and B learn from it, clipping and AdamW are written here from docs/lora.md, and share nothing
// with the library. Runs are fp64.
#pragma once
#include <map>
#include <string>

#include "support/learning_ranks.h"

namespace lockstep::tests {

using PlainTensors = std::map<std::string, std::vector<double>>;  // by name

struct LoraLearned {
  Learned learned;      // of adapters
  PlainTensors merged;  // the weights of the model after the last step
};

LoraLearned learn_with_adapters(const Replica::Options& options, int steps);

// The names of projections that have adapters, as in model.layers.0.self_attn.q_proj.
std::vector<std::string> adapted_projections(const Replica::Options& options);
// W + (alpha / rank) · B · A of one of them, stored as the model has it.
std::vector<double> plain_merge(const Replica::Options& options, const std::string& projection,
                                const std::vector<double>& weight, const PlainTensors& adapters);

}  // namespace lockstep::tests
