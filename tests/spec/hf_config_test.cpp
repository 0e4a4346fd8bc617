// A config.json gives the spec that transformers would build from it.
#include "hf_config_cases.h"
#include "spec/model/model_toml.h"
#include "support/model_file.h"

namespace lockstep {
namespace {

using namespace hf_cases;

TEST(HfConfig, GoldenLlamaGivesItsSpec) {
  ModelSpec expected = {
      .family = Family::llama, .vocabulary = 128, .layers = 2, .width = 32, .heads = 4, .kv_heads = 2};
  expected.head_width = 8;
  expected.ffn_width = 88;
  expected.max_positions = 64;
  EXPECT_EQ(read_hf_config(golden("llama-tiny")), expected);

  expected.vocabulary = 256;
  expected.layers = expected.heads = expected.kv_heads = 8;
  expected.head_width = 4;
  expected.ffn_width = 96;
  EXPECT_EQ(read_hf_config(golden("llama-mha-8l")), expected);
}

TEST(HfConfig, GoldenScaledLlamaGivesItsSpec) {
  ModelSpec expected = {
      .family = Family::llama, .vocabulary = 128, .layers = 3, .width = 32, .heads = 4, .kv_heads = 2};
  expected.head_width = 16;
  expected.ffn_width = 88;
  expected.max_positions = 64;
  expected.tied = true;
  expected.rope_theta = 500000;
  expected.rope_scaling = {.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_positions = 16};
  EXPECT_EQ(read_hf_config(golden("llama-tied-scaled")), expected);
}

TEST(HfConfig, GoldenQwen2HasBiasesOnQueriesKeysAndValues) {
  ModelSpec expected = read_hf_config(golden("llama-tiny"));
  expected.family = Family::qwen2;
  expected.qkv_bias = true;
  EXPECT_EQ(read_hf_config(golden("qwen2-tiny")), expected);
}

TEST(HfConfig, GoldenGpt2GivesItsSpec) {
  ModelSpec expected = {.family = Family::gpt2, .vocabulary = 128, .layers = 2, .width = 32, .heads = 4, .kv_heads = 4};
  expected.head_width = 8;
  expected.ffn_width = 128;
  expected.max_positions = 64;
  expected.norm = NormKind::layer;
  expected.mlp = MlpKind::gelu;
  expected.positions = PositionKind::learned;
  expected.tied = expected.qkv_bias = expected.out_bias = expected.mlp_bias = expected.in_out_weights = true;
  EXPECT_EQ(read_hf_config(golden("gpt2-tiny")), expected);
}

// The files as their authors published them, by several versions of the library, against the presets.
TEST(HfConfig, PublishedFilesGiveThePresets) {
  const std::pair<const char*, const char*> published[] = {
      {"llama3.2-1b", R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
        "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
        "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})"},
      {"mistral-7b", R"({"architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
        "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.42.0.dev0", "use_cache": true, "vocab_size": 32768})"},
      {"qwen2.5-0.5b", R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
        "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2",
        "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false, "use_sliding_window": false,
        "vocab_size": 151936})"},
      {"qwen3-8b", R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
        "initializer_range": 0.02, "intermediate_size": 12288, "max_position_embeddings": 40960,
        "max_window_layers": 36, "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
        "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})"},
      {"gpt2", R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
        "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
        "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
        "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})"},
  };
  for (const auto& [name, text] : published) {
    const auto preset = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "configs/models" / (std::string(name) + ".toml");
    EXPECT_EQ(parse_hf_config(text, name), tests::read_model_toml(preset)) << name;
  }
}

TEST(HfConfig, OldAndNewRopeFormsAreEqual) {
  const json fresh = golden_json("llama-tied-scaled");
  for (const char* type : {"rope_type", "type"}) {
    json old = fresh;
    old.erase("rope_parameters");
    old["rope_theta"] = 500000;
    old["rope_scaling"] = {{type, "llama3"},
                           {"factor", 8},
                           {"low_freq_factor", 1},
                           {"high_freq_factor", 4},
                           {"original_max_position_embeddings", 16}};
    EXPECT_EQ(parse_config(old), parse_config(fresh));
    old["rope_parameters"] = fresh["rope_parameters"];
    EXPECT_EQ(parse_config(old), parse_config(fresh)) << "both forms, agreeing";
  }
  json plain = golden_json("llama-tiny");
  plain.erase("rope_parameters");
  plain["rope_scaling"] = json();
  EXPECT_EQ(parse_config(plain), read_hf_config(golden("llama-tiny")));
}

TEST(HfConfig, AbsentFieldsHaveTheLibrarysDefaults) {
  ModelSpec llama = family_defaults(Family::llama);
  llama.vocabulary = 101;
  llama.layers = 2;
  llama.width = 64;
  llama.heads = llama.kv_heads = 32;
  llama.head_width = 2;
  llama.ffn_width = 160;
  EXPECT_EQ(parse_config(bare("llama")), llama);
  EXPECT_EQ(llama.max_positions, 2048);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.rope_theta, 10000);
  EXPECT_FALSE(llama.tied);
  EXPECT_EQ(parse_config(bare("mistral")).kv_heads, 8);
  EXPECT_EQ(parse_config(bare("mistral")).max_positions, 131072);
  EXPECT_EQ(parse_config(bare("qwen2")).kv_heads, 32);
  EXPECT_EQ(parse_config(bare("qwen2")).head_width, 2);
  EXPECT_EQ(parse_config(bare("qwen3")).head_width, 128);
  EXPECT_EQ(parse_config(bare("qwen3")).max_positions, 32768);
  EXPECT_TRUE(parse_config(bare("qwen3")).qk_norm);
  const ModelSpec gpt2 = parse_config(bare("gpt2"));
  EXPECT_EQ(gpt2.ffn_width, 256);
  EXPECT_EQ(gpt2.max_positions, 1024);
  EXPECT_EQ(gpt2.norm_eps, 1e-5);
  EXPECT_EQ(gpt2.dropout, 0.1);
  EXPECT_EQ(gpt2.attention_dropout, 0.1);
  EXPECT_TRUE(gpt2.tied);
}

TEST(HfConfig, NullIsAbsenceButForKeyValueHeadsAndTheWindow) {
  json config = bare("llama");
  for (const char* key : {"head_dim", "rms_norm_eps", "rope_theta", "attention_bias", "quantization_config", "odd"}) {
    config[key] = json();
  }
  EXPECT_EQ(parse_config(config), parse_config(bare("llama")));
  json mistral = bare("mistral");
  mistral["num_key_value_heads"] = json();
  EXPECT_EQ(parse_config(mistral).kv_heads, 32);
}

TEST(HfConfig, AWindowAsWideAsTheSequenceIsFullAttention) {
  json config = bare("mistral");
  config["max_position_embeddings"] = 4096;
  config["sliding_window"] = 4096;
  EXPECT_EQ(parse_config(config).max_positions, 4096);
  config.erase("sliding_window");  // means 4096
  EXPECT_EQ(parse_config(config).max_positions, 4096);
}

TEST(HfConfig, FieldsReachTheSpec) {
  json llama = bare("llama");
  llama.update(
      {{"attention_bias", true}, {"mlp_bias", true}, {"attention_dropout", 0.25}, {"initializer_range", 0.01}});
  EXPECT_TRUE(parse_config(llama).qkv_bias && parse_config(llama).out_bias && parse_config(llama).mlp_bias);
  EXPECT_EQ(parse_config(llama).attention_dropout, 0.25);
  EXPECT_EQ(parse_config(llama).init_std, 0.01);
  json qwen3 = bare("qwen3");
  qwen3["attention_bias"] = true;
  EXPECT_TRUE(parse_config(qwen3).qkv_bias && parse_config(qwen3).out_bias && !parse_config(qwen3).mlp_bias);
  json gpt2 = bare("gpt2");
  gpt2.update({{"resid_pdrop", 0.2}, {"embd_pdrop", 0.2}, {"attn_pdrop", 0.3}, {"n_inner", 100}, {"n_ctx", 1024}});
  gpt2.update({{"activation_function", "gelu_pytorch_tanh"}, {"tie_word_embeddings", false}});
  EXPECT_EQ(parse_config(gpt2).dropout, 0.2);
  EXPECT_EQ(parse_config(gpt2).attention_dropout, 0.3);
  EXPECT_EQ(parse_config(gpt2).ffn_width, 100);
  EXPECT_FALSE(parse_config(gpt2).tied);
}

}  // namespace
}  // namespace lockstep
