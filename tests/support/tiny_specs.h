// One small model of every family, with sizes that are odd wherever the family allows it.
#pragma once
#include <string>
#include <vector>

#include "spec/model_spec.h"

namespace lockstep::tests {

struct NamedSpec {
  std::string name;
  ModelSpec spec;
};

// Llama (grouped heads, tied and scaled RoPE), Mistral, Qwen2, Qwen3, GPT-2 without and with dropout.
std::vector<NamedSpec> tiny_specs();

}  // namespace lockstep::tests
