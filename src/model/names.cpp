#include "model/names.h"

#include <fmt/format.h>

namespace lockstep {

BlockNames block_names(const ModelSpec& spec, std::int64_t layer) {
  if (spec.family == Family::gpt2) {
    const std::string at = fmt::format("transformer.h.{}.", layer);
    return {.norm1 = at + "ln_1",
            .norm2 = at + "ln_2",
            .qkv = at + "attn.c_attn",
            .out = at + "attn.c_proj",
            .up = at + "mlp.c_fc",
            .down = at + "mlp.c_proj"};
  }
  const std::string at = fmt::format("model.layers.{}.", layer);
  return {.norm1 = at + "input_layernorm",
          .norm2 = at + "post_attention_layernorm",
          .query = at + "self_attn.q_proj",
          .key = at + "self_attn.k_proj",
          .value = at + "self_attn.v_proj",
          .out = at + "self_attn.o_proj",
          .query_norm = at + "self_attn.q_norm",
          .key_norm = at + "self_attn.k_norm",
          .gate = at + "mlp.gate_proj",
          .up = at + "mlp.up_proj",
          .down = at + "mlp.down_proj"};
}

ModelNames model_names(const ModelSpec& spec) {
  if (spec.family == Family::gpt2)
    return {.embedding = "transformer.wte",
            .positions = "transformer.wpe",
            .final_norm = "transformer.ln_f",
            .head = "lm_head"};
  return {.embedding = "model.embed_tokens", .final_norm = "model.norm", .head = "lm_head"};
}

}  // namespace lockstep
