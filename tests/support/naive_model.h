// The forward pass of every family in plain loops over doubles, written from the published definitions and sharing
// nothing with the library but the spec and the tensors' names: what the library's forward is held to where there is no
// reference data.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "spec/model_spec.h"

namespace lockstep::tests {

using Values = std::vector<double>;
// The elements of a logical tensor by Hugging Face name.
using Weights = std::function<const Values&(const std::string& name)>;

// Logits (T, V) of one sequence of tokens, without dropout.
Values naive_logits(const ModelSpec& spec, const Weights& weights, const std::vector<int>& tokens);

}  // namespace lockstep::tests
