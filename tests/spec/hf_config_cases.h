// What the tests of hf_config share: the golden files, and the smallest file of each family.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "spec/model/hf_config.h"

namespace lockstep::hf_cases {

using nlohmann::json;

inline std::filesystem::path golden(const std::string& folder) {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / folder / "config.json";
}

inline json golden_json(const std::string& folder) { return json::parse(std::ifstream(golden(folder))); }

inline ModelSpec parse_config(const json& config) { return parse_hf_config(config.dump(), "config.json"); }

// What the smallest acceptable file of each family holds: the sizes and nothing else.
inline json bare(const std::string& type) {
  if (type == "gpt2") return {{"model_type", type}, {"vocab_size", 101}, {"n_layer", 2}, {"n_embd", 64}, {"n_head", 4}};
  return {{"model_type", type},       {"vocab_size", 101},         {"num_hidden_layers", 2},  {"hidden_size", 64},
          {"intermediate_size", 160}, {"num_attention_heads", 32}, {"sliding_window", json()}};
}

}  // namespace lockstep::hf_cases
