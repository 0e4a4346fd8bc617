#include "spec/model/hf_config.h"

#include <nlohmann/json.hpp>

#include "spec/model/hf_rope.h"
#include "spec/text/json_fields.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

constexpr std::size_t kFileLimit = 1 << 20;

// Fields that speak of tokens, storage, generation, other tasks or of how a library runs the model: they never change
// what the trained model computes. Everything else must be read or is refused.
constexpr std::string_view kHarmless[] = {
    // where it came from and how it is stored
    "architectures", "_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "dtype", "torch_dtype",
    "is_llama_config", "transformers.js_config", "tokenizer_class", "use_bfloat16",
    // token ids
    "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id", "mask_token_id",
    "decoder_start_token_id",
    // how a library runs it
    "use_cache", "output_attentions", "output_hidden_states", "output_past", "return_dict", "use_return_dict",
    "torchscript", "attn_implementation", "_attn_implementation", "_attn_implementation_autoset",
    "gradient_checkpointing", "chunk_size_feed_forward", "is_decoder", "tf_legacy_loss",
    // other heads and tasks
    "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params", "prefix",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    // sizes of older versions that no longer act
    "n_ctx", "n_special", "predict_special_tokens", "max_window_layers",
    // generation
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate",
    "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
    "suppress_tokens", "begin_suppress_tokens"};

void require_flag(JsonFields& fields, std::string_view key, bool needed, std::string_view remedy) {
  if (fields.flag(key).value_or(needed) == needed) return;
  fields.refuse(fmt::format("field {} is {}, which is not supported", fields.name(key), !needed), std::string(remedy));
}

Family read_family(JsonFields& fields) {
  const std::string supported = "use a model of type " + family_names();
  const auto type = fields.word("model_type");
  if (!type) fields.refuse("field 'model_type' is missing", "this must be the config.json of a model");
  const auto family = family_named(*type);
  if (!family) fields.refuse(fmt::format("model_type {} is not supported", quote_text(*type)), supported);
  return *family;
}

// Features of no family here, caught by name so that the message says more than "unknown".
void refuse_known_foreign(JsonFields& fields, const nlohmann::json& document) {
  if (fields.has("quantization_config")) {
    fields.refuse("field 'quantization_config': quantized weights are not supported",
                  "use the checkpoint before quantization");
  }
  for (const auto& [key, value] : document.items()) {
    const bool experts =
        key.find("expert") != std::string::npos || key.starts_with("moe_") || key.starts_with("router_");
    if (experts && !value.is_null()) {
      fields.refuse(fmt::format("field {}: mixtures of experts are not supported", quote_text(key)),
                    "use a dense model");
    }
  }
  if (fields.size("pretraining_tp").value_or(1) != 1) {
    fields.refuse("field 'pretraining_tp' is not 1: sliced projections are not supported",
                  "set it to 1, which differs in rounding alone");
  }
  for (const std::string_view key : {"is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"}) {
    require_flag(fields, key, false, "use a model that is a decoder alone");
  }
  for (const std::string_view key : {"pruned_heads", "per_layer_config"}) {
    if (const auto object = fields.object(key)) object->finish({});
  }
}

void read_layer_types(JsonFields& fields, const ModelSpec& spec) {
  const auto types = fields.words("layer_types");
  for (const std::string& type : types) {
    if (type == "full_attention") continue;
    fields.refuse(fmt::format("field 'layer_types' holds {}, which is not supported", quote_text(type)),
                  "use a model whose layers are all 'full_attention'");
  }
  if (fields.has("layer_types") && static_cast<std::int64_t>(types.size()) != spec.layers) {
    fields.refuse(fmt::format("field 'layer_types' has {} entries for {} layers", types.size(), spec.layers),
                  "give one for each layer");
  }
}

void read_window(JsonFields& fields, const ModelSpec& spec) {
  const auto stated = fields.size("sliding_window");
  if (spec.family == Family::qwen2 || spec.family == Family::qwen3) {
    require_flag(fields, "use_sliding_window", false, "set it to false to train with full attention");
    return;
  }
  if (spec.family != Family::mistral) {
    if (stated) fields.refuse("field 'sliding_window' has no meaning in this family", "remove it");
    return;
  }
  if (fields.is_null("sliding_window")) return;
  const std::int64_t window = stated.value_or(4096);  // the class's default when the field is absent
  if (window >= spec.max_positions) return;           // wider than any sequence: it changes nothing
  fields.refuse(
      fmt::format("field 'sliding_window' is {} and sliding windows are not supported",
                  stated ? std::to_string(window) : "absent, which means 4096,"),
      fmt::format("set it to null to train with full attention, or lower max_position_embeddings from {} to {}",
                  spec.max_positions, window));
}

std::int64_t read_kv_heads(JsonFields& fields, const ModelSpec& spec) {
  const auto stated = fields.size("num_key_value_heads");
  if (stated) return *stated;
  if (fields.is_null("num_key_value_heads") || spec.family == Family::llama) return spec.heads;
  return spec.family == Family::mistral ? 8 : 32;
}

std::int64_t head_width_of(const JsonFields& fields, const ModelSpec& spec, std::string_view remedy) {
  if (spec.width % spec.heads != 0) {
    fields.refuse(fmt::format("the width ({}) is not a multiple of the number of heads ({})", spec.width, spec.heads),
                  std::string(remedy));
  }
  return spec.width / spec.heads;
}

void read_biases(JsonFields& fields, ModelSpec& spec) {
  const bool chosen = spec.family == Family::llama || spec.family == Family::qwen3;
  if (chosen) spec.qkv_bias = spec.out_bias = fields.flag("attention_bias").value_or(false);
  if (spec.family == Family::llama) spec.mlp_bias = fields.flag("mlp_bias").value_or(false);
  if (spec.family == Family::mistral) require_flag(fields, "attention_bias", false, "mistral has no biases");
  if (spec.family != Family::llama) require_flag(fields, "mlp_bias", false, "only llama has these biases");
}

void read_rope_family(JsonFields& fields, ModelSpec& spec) {
  spec.vocabulary = fields.required_size("vocab_size");
  spec.layers = fields.required_size("num_hidden_layers");
  spec.width = fields.required_size("hidden_size");
  spec.heads = fields.required_size("num_attention_heads");
  spec.ffn_width = fields.required_size("intermediate_size");
  spec.kv_heads = read_kv_heads(fields, spec);
  spec.max_positions = fields.size("max_position_embeddings").value_or(spec.max_positions);
  if (const auto stated = fields.size("head_dim")) {
    spec.head_width = *stated;
  } else {
    spec.head_width = spec.family == Family::qwen3 ? 128 : head_width_of(fields, spec, "state 'head_dim'");
  }
  spec.norm_eps = fields.number("rms_norm_eps").value_or(spec.norm_eps);
  spec.attention_dropout = fields.number("attention_dropout").value_or(spec.attention_dropout);
  const std::string activation = fields.word("hidden_act").value_or("silu");
  if (activation != "silu" && activation != "swish") {  // two names of one function
    fields.refuse(fmt::format("field 'hidden_act' is {}, which is not supported", quote_text(activation)),
                  "use a model with 'silu'");
  }
  require_flag(fields, "rope_interleaved", false, "use a model whose rotary halves are apart");
  require_flag(fields, "use_mrope", false, "use a model of text alone");
  read_hf_rope(fields, spec);
  read_biases(fields, spec);
  read_layer_types(fields, spec);
  read_window(fields, spec);
}

void read_gpt2(JsonFields& fields, ModelSpec& spec) {
  spec.vocabulary = fields.required_size("vocab_size");
  spec.layers = fields.required_size("n_layer");
  spec.width = fields.required_size("n_embd");
  spec.heads = spec.kv_heads = fields.required_size("n_head");
  spec.head_width = head_width_of(fields, spec, "change 'n_embd' or 'n_head'");
  spec.ffn_width = fields.size("n_inner").value_or(4 * spec.width);
  spec.max_positions = fields.size("n_positions").value_or(spec.max_positions);
  spec.norm_eps = fields.number("layer_norm_epsilon").value_or(spec.norm_eps);
  const std::string activation = fields.word("activation_function").value_or("gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {  // two names of one function
    fields.refuse(fmt::format("field 'activation_function' is {}, which is not supported", quote_text(activation)),
                  "use a model with 'gelu_new'");
  }
  const double branches = fields.number("resid_pdrop").value_or(spec.dropout);
  const double embedding = fields.number("embd_pdrop").value_or(spec.dropout);
  if (branches != embedding) {
    fields.refuse(fmt::format("fields 'resid_pdrop' ({}) and 'embd_pdrop' ({}) differ, and one rate serves both",
                              branches, embedding),
                  "set both alike");
  }
  spec.dropout = branches;
  spec.attention_dropout = fields.number("attn_pdrop").value_or(spec.attention_dropout);
  require_flag(fields, "scale_attn_weights", true, "use a model that divides scores by the root of the head width");
  require_flag(fields, "scale_attn_by_inverse_layer_idx", false, "use a model without it");
  require_flag(fields, "reorder_and_upcast_attn", false, "set it to false, which differs in rounding alone");
}

}  // namespace

ModelSpec parse_hf_config(std::string_view json_text, const std::string& where) {
  const nlohmann::json document = parse_json_object(json_text, where);
  JsonFields fields(document, where);
  ModelSpec spec = family_defaults(read_family(fields));
  refuse_known_foreign(fields, document);
  spec.tied = fields.flag("tie_word_embeddings").value_or(spec.tied);
  spec.init_std = fields.number("initializer_range").value_or(spec.init_std);
  if (spec.family == Family::gpt2) {
    read_gpt2(fields, spec);
  } else {
    read_rope_family(fields, spec);
  }
  fields.finish(kHarmless);
  validate(spec, where, ExitCode::bad_input_file);
  return spec;
}

std::span<const std::string_view> hf_fields_without_arithmetic() { return kHarmless; }

ModelSpec read_hf_config(const std::filesystem::path& file) {
  return parse_hf_config(read_text_file(file, kFileLimit, ExitCode::bad_input_file), file.string());
}

}  // namespace lockstep
