// One small model of every family, with sizes that are odd wherever the family allows it.
#pragma once
#include <string>
#include <vector>

#include "spec/model/model_spec.h"

namespace lockstep::tests {

struct NamedSpec {
  std::string name;
  ModelSpec spec;
};

// Llama (grouped heads, tied and scaled RoPE), Mistral, Qwen2, Qwen3, GPT-2 without and with dropout.
std::vector<NamedSpec> tiny_specs();
// These, whose heads go to 3 and 6 ranks, and the same with heads that go to 2, 4 and 8, which share 2 key/value heads.
std::vector<NamedSpec> cut_specs();

}  // namespace lockstep::tests
