#include "spec/model/hf_config_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spec/model/hf_config.h"
#include "spec/text/json_fields.h"

namespace lockstep {
namespace {

// Of the fields without arithmetic, those that speak of the old files and not of the model.
constexpr std::string_view kOfTheFiles[] = {"architectures", "torch_dtype",          "dtype",          "use_bfloat16",
                                            "_commit_hash",  "transformers_version", "is_llama_config"};

using Json = nlohmann::json;

std::string_view architecture(Family family) {
  switch (family) {
    case Family::llama:
      return "LlamaForCausalLM";
    case Family::mistral:
      return "MistralForCausalLM";
    case Family::qwen2:
      return "Qwen2ForCausalLM";
    case Family::qwen3:
      return "Qwen3ForCausalLM";
    case Family::gpt2:
      return "GPT2LMHeadModel";
  }
  LOCKSTEP_CHECK(false, "no such family: {}", static_cast<int>(family));
}

void write_gpt2(const ModelSpec& spec, Json& config) {
  config.update({{"n_layer", spec.layers},
                 {"n_embd", spec.width},
                 {"n_head", spec.heads},
                 {"n_inner", spec.ffn_width},
                 {"n_positions", spec.max_positions},
                 {"activation_function", "gelu_new"},
                 {"layer_norm_epsilon", spec.norm_eps},
                 {"resid_pdrop", spec.dropout},
                 {"embd_pdrop", spec.dropout},
                 {"attn_pdrop", spec.attention_dropout},
                 {"scale_attn_weights", true},
                 {"scale_attn_by_inverse_layer_idx", false},
                 {"reorder_and_upcast_attn", false}});
}

void write_rope_family(const ModelSpec& spec, Json& config) {
  config.update({{"num_hidden_layers", spec.layers},
                 {"hidden_size", spec.width},
                 {"num_attention_heads", spec.heads},
                 {"num_key_value_heads", spec.kv_heads},
                 {"head_dim", spec.head_width},
                 {"intermediate_size", spec.ffn_width},
                 {"max_position_embeddings", spec.max_positions},
                 {"hidden_act", "silu"},
                 {"rms_norm_eps", spec.norm_eps},
                 {"rope_theta", spec.rope_theta},
                 {"rope_scaling", nullptr},
                 {"attention_dropout", spec.attention_dropout}});
  if (spec.rope_scaling) {
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", spec.rope_scaling->factor},
                              {"low_freq_factor", spec.rope_scaling->low_freq_factor},
                              {"high_freq_factor", spec.rope_scaling->high_freq_factor},
                              {"original_max_position_embeddings", spec.rope_scaling->original_positions}};
  }
  if (spec.family == Family::llama || spec.family == Family::qwen3) config["attention_bias"] = spec.qkv_bias;
  if (spec.family == Family::llama) config["mlp_bias"] = spec.mlp_bias;
  if (spec.family != Family::llama) config["sliding_window"] = nullptr;  // absence would mean a window of 4096
  if (spec.family == Family::qwen2 || spec.family == Family::qwen3) config["use_sliding_window"] = false;
}

void carry_over(const Json& from, Json& config) {
  for (const std::string_view key : hf_fields_without_arithmetic())
    if (const auto field = from.find(key);
        field != from.end() && std::ranges::find(kOfTheFiles, key) == std::end(kOfTheFiles))
      config[std::string(key)] = *field;
}

}  // namespace

std::string hf_config_text(const ModelSpec& spec, std::string_view torch_dtype, std::string_view from) {
  Json config = {{"architectures", {architecture(spec.family)}},
                 {"model_type", name_of(spec.family)},
                 {"torch_dtype", torch_dtype},
                 {"vocab_size", spec.vocabulary},
                 {"tie_word_embeddings", spec.tied},
                 {"initializer_range", spec.init_std},
                 {"bos_token_id", nullptr},
                 {"eos_token_id", nullptr},
                 {"use_cache", true}};
  if (spec.family == Family::gpt2)
    write_gpt2(spec, config);
  else
    write_rope_family(spec, config);
  if (!from.empty()) carry_over(parse_json_object(from, "config.json"), config);
  return config.dump(2) + "\n";
}

}  // namespace lockstep
