#include "support/tiny_specs.h"

namespace lockstep::tests {

namespace {
ModelSpec tiny(Family family) {
  ModelSpec s = family_defaults(family);
  s.vocabulary = 37;
  s.layers = 2;
  s.width = 24;
  s.heads = 6;
  s.kv_heads = family == Family::gpt2 ? 6 : 3;
  s.head_width = 4;
  s.ffn_width = 29;
  s.max_positions = 64;
  s.norm_eps = 1e-5;
  s.dropout = 0;
  s.attention_dropout = 0;
  s.init_std = 0.2;  // large enough that every path matters to the loss
  return s;
}
}  // namespace

std::vector<NamedSpec> tiny_specs() {
  std::vector<NamedSpec> all;
  all.push_back({"llama", tiny(Family::llama)});
  all.push_back({"llama_tied_scaled", tiny(Family::llama)});
  all.back().spec.tied = true;
  all.back().spec.head_width = 10;  // unlike width / heads
  all.back().spec.rope_scaling =
      RopeScaling{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_positions = 16};
  all.push_back({"llama_biases", tiny(Family::llama)});
  all.back().spec.qkv_bias = all.back().spec.out_bias = all.back().spec.mlp_bias = true;
  all.push_back({"mistral", tiny(Family::mistral)});
  all.push_back({"qwen2", tiny(Family::qwen2)});
  all.push_back({"qwen3", tiny(Family::qwen3)});
  all.back().spec.head_width = 6;
  all.push_back({"gpt2", tiny(Family::gpt2)});
  all.push_back({"gpt2_dropout", tiny(Family::gpt2)});
  all.back().spec.dropout = 0.2;
  all.back().spec.attention_dropout = 0.3;
  return all;
}

std::vector<NamedSpec> cut_specs() {
  std::vector<NamedSpec> all = tiny_specs();
  for (const NamedSpec& model : tiny_specs()) {
    NamedSpec eight = model;
    eight.name += "_8_heads";
    eight.spec.heads = 8;
    eight.spec.kv_heads = model.spec.kv_heads == model.spec.heads ? 8 : 2;
    if (eight.spec.family == Family::gpt2) eight.spec.head_width = 3;
    all.push_back(eight);
  }
  return all;
}

}  // namespace lockstep::tests
