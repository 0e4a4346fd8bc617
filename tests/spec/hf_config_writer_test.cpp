// A written config.json gives the same spec back, and says to transformers what it has to.
#include "spec/model/hf_config_writer.h"

#include <gtest/gtest.h>

#include "spec/hf_config_cases.h"
#include "support/tiny_specs.h"

namespace lockstep {
namespace {

using nlohmann::json;

TEST(HfConfigWriter, EveryFamilyIsReadBackAsItWas) {
  for (const tests::NamedSpec& named : tests::tiny_specs())
    EXPECT_EQ(parse_hf_config(hf_config_text(named.spec, "float32"), "written"), named.spec) << named.name;
}

// What the model computes is the spec's to say, and how the old files were stored is no longer true.
TEST(HfConfigWriter, CarriesOverWhatChangesNoArithmetic) {
  const ModelSpec spec = tests::tiny_specs().front().spec;
  const json from = {{"bos_token_id", 128000},   {"eos_token_id", {128001, 128008}},
                     {"pad_token_id", nullptr},  {"use_cache", false},
                     {"tokenizer_class", "Own"}, {"id2label", {{"0", "yes"}}},
                     {"temperature", 0.6},       {"_name_or_path", "someone/model"},
                     {"architectures", {"Old"}}, {"torch_dtype", "float8"},
                     {"dtype", "float8"},        {"transformers_version", "4.1"},
                     {"hidden_size", 7},         {"num_hidden_layers", 99},
                     {"unheard_of", 1}};
  const std::string text = hf_config_text(spec, "float32", from.dump());
  const json written = json::parse(text), alone = json::parse(hf_config_text(spec, "float32"));
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "tokenizer_class", "id2label",
                          "temperature", "_name_or_path"})
    EXPECT_EQ(written.at(key), from.at(key)) << key;
  for (const char* key : {"architectures", "torch_dtype", "hidden_size", "num_hidden_layers"})
    EXPECT_EQ(written.at(key), alone.at(key)) << key;
  for (const char* key : {"dtype", "transformers_version", "unheard_of"}) EXPECT_FALSE(written.contains(key)) << key;
  EXPECT_EQ(parse_hf_config(text, "written"), spec);
  EXPECT_TRUE(alone.at("eos_token_id").is_null());
}

// Each value by itself, away from every default, so that none can be forgotten.
TEST(HfConfigWriter, EveryValueIsReadBackAsItWas) {
  for (const tests::NamedSpec& named : tests::tiny_specs()) {
    ModelSpec spec = named.spec;
    spec.vocabulary = 1013;
    spec.layers = 5;
    spec.ffn_width = 77;
    spec.max_positions = 333;
    spec.norm_eps = 1.25e-7;
    spec.tied = !spec.tied;
    spec.init_std = 0.0123;
    spec.attention_dropout = 0.07;
    if (spec.positions == PositionKind::rope) {
      spec.heads = 12;
      spec.kv_heads = 4;
      spec.head_width = 14;
      spec.rope_theta = 123456.75;
      spec.rope_scaling =
          RopeScaling{.factor = 3.5, .low_freq_factor = 1.5, .high_freq_factor = 7.25, .original_positions = 99};
    } else {
      spec.dropout = 0.31;
    }
    if (spec.family == Family::qwen3) spec.qkv_bias = spec.out_bias = true;
    validate(spec, named.name);
    EXPECT_EQ(parse_hf_config(hf_config_text(spec, "bfloat16"), "written"), spec) << named.name;
  }
}

TEST(HfConfigWriter, TheGoldenConfigsSurvive) {
  for (const char* name : {"gpt2-tiny", "llama-mha-8l", "llama-tied-scaled", "llama-tiny", "qwen2-tiny"}) {
    const ModelSpec spec = read_hf_config(hf_cases::golden(name));
    const json written = json::parse(hf_config_text(spec, "float32"));
    EXPECT_EQ(hf_cases::parse_config(written), spec) << name;
    EXPECT_EQ(written.at("architectures"), hf_cases::golden_json(name).at("architectures")) << name;
  }
}

TEST(HfConfigWriter, SaysWhatTransformersNeedsToHear) {
  ModelSpec spec = tests::tiny_specs().front().spec;
  spec.family = Family::mistral;
  const json written = json::parse(hf_config_text(spec, "float16"));
  EXPECT_EQ(written.at("architectures"), json::array({"MistralForCausalLM"}));
  EXPECT_EQ(written.at("model_type"), "mistral");
  EXPECT_EQ(written.at("torch_dtype"), "float16");
  EXPECT_TRUE(written.at("sliding_window").is_null());  // absent, it would mean 4096
}

}  // namespace
}  // namespace lockstep
