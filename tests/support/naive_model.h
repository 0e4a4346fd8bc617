// The forward pass of every family in plain loops over doubles, written from the published definitions and sharing
// nothing with the library but the spec and the tensors' names: what the library's forward is held to where there is no
// reference data.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "spec/model/model_spec.h"

namespace lockstep::tests {

using Values = std::vector<double>;
// The elements of a logical tensor by Hugging Face name.
using Weights = std::function<const Values&(const std::string& name)>;

// Which masks dropout has in a training step: those of this batch of a run with this seed, and of this sample of the
// global batch.
struct NaiveDropout {
  std::uint64_t seed = 0;
  std::int64_t batch = 0;
  std::int64_t sample = 0;
};
// Logits (T, V) of one sequence of tokens; without dropout, or in training.
Values naive_logits(const ModelSpec& spec, const Weights& weights, const std::vector<int>& tokens,
                    const NaiveDropout* dropout = nullptr);
// The losses of targets, by token: 0 where the target is -1.
Values naive_losses(const Values& logits, const std::vector<int>& targets);

}  // namespace lockstep::tests
