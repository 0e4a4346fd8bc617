// What cannot be trained as it is described is refused by name, and no file brings the reader down.
#include "hf_config_cases.h"
#include "refusal_message.h"

namespace lockstep {
namespace {

using namespace hf_cases;

void expect_config_refused(const std::string& text, const std::vector<std::string>& words) {
  try {
    parse_hf_config(text, "some/config.json");
    ADD_FAILURE() << "accepted: " << text.substr(0, 500);
  } catch (const UserError& error) {
    expect_message(error, ExitCode::bad_input_file, "some/config.json", words);
  }
}

struct Refusal {
  const char* type;
  const char* patch;  // fields to set
  std::vector<std::string> words;
};

const Refusal kRefusals[] = {
    {"gpt2", R"({"model_type": "bloom"})", {"'bloom'", "llama, mistral, qwen2, qwen3, gpt2"}},
    {"gpt2", R"({"model_type": "a\nb"})", {"'a?b'"}},
    {"gpt2", R"({"model_type": 3})", {"'model_type' is 3", "a string"}},
    {"mistral", R"({"sliding_window": 4096})", {"'sliding_window' is 4096", "null"}},
    {"llama", R"({"sliding_window": 4096})", {"'sliding_window'"}},
    {"qwen2", R"({"use_sliding_window": true})", {"'use_sliding_window'", "full attention"}},
    {"qwen3", R"({"use_sliding_window": true})", {"'use_sliding_window'"}},
    {"qwen2", R"({"layer_types": ["full_attention", "sliding_attention"]})", {"'layer_types'", "'sliding_attention'"}},
    {"qwen2", R"({"layer_types": ["full_attention"]})", {"'layer_types'", "1 entries for 2 layers"}},
    {"llama", R"({"rope_scaling": {"type": "yarn", "factor": 4}})", {"'rope_scaling.rope_type' is 'yarn'", "'llama3'"}},
    {"llama", R"({"rope_scaling": {"type": "linear", "factor": 4}})", {"'linear'"}},
    {"llama", R"({"rope_scaling": {"rope_type": "dynamic", "factor": 4}})", {"'dynamic'"}},
    {"llama",
     R"({"rope_parameters": {"rope_type": "longrope", "rope_theta": 10000}})",
     {"'rope_parameters.rope_type'"}},
    {"llama", R"({"rope_scaling": {"rope_type": "llama3", "type": "default"}})", {"contradict"}},
    {"llama",
     R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})",
     {"'rope_scaling.low_freq_factor' is missing"}},
    {"llama",
     R"({"rope_parameters": {"rope_type": "default", "mscale": 2}})",
     {"unknown field 'rope_parameters.mscale'"}},
    {"llama", R"({"rope_theta": 10000, "rope_parameters": {"rope_theta": 20000}})", {"'rope_theta'", "10000", "20000"}},
    {"llama",
     R"({"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"rope_type": "llama3", "factor": 8,
         "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 16}})",
     {"'rope_scaling' and 'rope_parameters' contradict"}},
    {"llama", R"({"rope_theta": "big"})", {"'rope_theta' is string", "a number"}},
    {"llama", R"({"rope_theta": -1})", {"rope_theta"}},
    {"llama", R"({"partial_rotary_factor": 0.5})", {"'partial_rotary_factor'"}},
    {"qwen3", R"({"rope_parameters": {"partial_rotary_factor": 0.5}})", {"'rope_parameters.partial_rotary_factor'"}},
    {"llama", R"({"hidden_act": "gelu"})", {"'hidden_act' is 'gelu'", "'silu'"}},
    {"gpt2", R"({"activation_function": "relu"})", {"'activation_function' is 'relu'", "'gelu_new'"}},
    {"llama", R"({"quantization_config": {"bits": 4}})", {"'quantization_config'", "before quantization"}},
    {"mistral", R"({"num_local_experts": 8})", {"'num_local_experts'", "experts", "dense"}},
    {"qwen2", R"({"moe_intermediate_size": 8})", {"'moe_intermediate_size'", "experts"}},
    {"gpt2", R"({"scale_attn_by_inverse_layer_idx": true})", {"'scale_attn_by_inverse_layer_idx' is true"}},
    {"gpt2", R"({"reorder_and_upcast_attn": true})", {"'reorder_and_upcast_attn' is true"}},
    {"gpt2", R"({"add_cross_attention": true})", {"'add_cross_attention' is true"}},
    {"gpt2", R"({"scale_attn_weights": false})", {"'scale_attn_weights' is false"}},
    {"gpt2", R"({"resid_pdrop": 0.0})", {"'resid_pdrop' (0)", "'embd_pdrop' (0.1)"}},
    {"gpt2", R"({"resid_pdrop": 1.0, "embd_pdrop": 1.0})", {"dropout is 1"}},
    {"gpt2", R"({"n_head": 5})", {"64", "(5)", "'n_head'"}},
    {"gpt2", R"({"rope_theta": 10000})", {"unknown field 'rope_theta'"}},
    {"llama", R"({"pretraining_tp": 2})", {"'pretraining_tp'"}},
    {"llama", R"({"logit_scale": 0.5})", {"unknown field 'logit_scale' may change the arithmetic", "remove it"}},
    {"llama", R"({"auto_map": {"AutoConfig": "x.Y"}})", {"unknown field 'auto_map'"}},
    {"mistral", R"({"attention_bias": true})", {"'attention_bias' is true"}},
    {"llama", R"({"hidden_size": "64"})", {"'hidden_size' is string", "a whole number"}},
    {"llama", R"({"hidden_size": 64.0})", {"'hidden_size' is 64.0"}},
    {"llama", R"({"hidden_size": true})", {"'hidden_size' is boolean"}},
    {"llama", R"({"hidden_size": {"a": 1}})", {"'hidden_size' is object"}},
    {"llama", R"({"hidden_size": 0})", {"'hidden_size' is 0", "from 1"}},
    {"llama", R"({"hidden_size": -64})", {"'hidden_size' is -64"}},
    {"llama", R"({"hidden_size": null})", {"'hidden_size' is missing"}},
    {"llama", R"({"hidden_size": 1099511627777})", {"'hidden_size' is 1099511627777", "2^40"}},
    {"llama", R"({"hidden_size": 18446744073709551615})", {"'hidden_size' is 18446744073709551615"}},
    {"llama", R"({"hidden_size": 100000000000000000000000})", {"'hidden_size'"}},
    {"llama", R"({"hidden_size": 1099511627776, "head_dim": 64, "vocab_size": 2147483647})", {"2^50"}},
    {"llama", R"({"hidden_size": 1048576, "head_dim": 64, "vocab_size": 2147483647})", {"2^50"}},
    {"llama", R"({"num_hidden_layers": 1000000})", {"layers is 1000000"}},
    {"llama", R"({"hidden_size": 65})", {"(65)", "'head_dim'"}},
    {"llama", R"({"head_dim": 3})", {"head_width (3) is odd"}},
    {"llama", R"({"num_key_value_heads": 5})", {"heads (32)", "kv_heads (5)"}},
    {"llama", R"({"rms_norm_eps": 0})", {"norm_eps is 0"}},
    {"llama", R"({"tie_word_embeddings": 1})", {"'tie_word_embeddings' is 1", "true or false"}},
};

TEST(HfConfigRefusal, WhatIsNotSupportedIsRefusedByName) {
  for (const Refusal& refusal : kRefusals) {
    SCOPED_TRACE(refusal.patch);
    json config = bare(refusal.type);
    config.update(json::parse(refusal.patch));
    expect_config_refused(config.dump(), refusal.words);
  }
}

TEST(HfConfigRefusal, AnAbsentMistralWindowIsTheDefaultWindow) {
  json config = bare("mistral");
  config.erase("sliding_window");
  expect_config_refused(config.dump(), {"'sliding_window' is absent, which means 4096"});
}

TEST(HfConfigRefusal, AMissingSizeIsNamed) {
  for (const char* type : {"llama", "gpt2"}) {
    const json whole = bare(type);
    for (const auto& [key, value] : whole.items()) {
      if (value.is_null()) continue;
      json config = bare(type);
      config.erase(key);
      expect_config_refused(config.dump(), {"'" + key + "' is missing"});
    }
  }
}

TEST(HfConfigRefusal, WhatIsNotAnObjectIsRefused) {
  for (const char* text :
       {"", " ", "[]", "3", "null", "\"llama\"", "{", "{\"a\" 1}", "{} {}", "{\"a\": NaN}", "\xff\xfe"}) {
    expect_config_refused(text, {});
  }
  expect_config_refused("{\n\n  \"a\": 1,,}", {"line 3"});
  expect_config_refused("{\"vocab_size\": 1e999}", {"number"});
  expect_config_refused(R"({"model_type": "llama", "model_type": "gpt2"})", {"'model_type' appears twice"});
}

TEST(HfConfigRefusal, DeepNestingAndLongNamesAreRefusedInOneLine) {
  const std::size_t depth = 400000;
  expect_config_refused(std::string(depth, '['), {});
  expect_config_refused("{\"model_type\": " + std::string(depth, '[') + std::string(depth, ']') + "}",
                        {"is nested deeper than 64"});
  std::string objects;
  for (std::size_t i = 0; i < depth / 2; ++i) objects += "{\"a\":";
  expect_config_refused(objects + "1" + std::string(depth / 2, '}'), {"is nested deeper than 64"});
  expect_config_refused(R"({"model_type": []})", {"'model_type' is array"});
  json config = bare("llama");
  config[std::string(100000, 'x') + "\n"] = 1;
  expect_config_refused(config.dump(), {"unknown field 'xxx"});
}

TEST(HfConfigRefusal, APrefixOfAFileNeverCrashes) {
  for (const char* folder : {"gpt2-tiny", "llama-tied-scaled", "qwen2-tiny"}) {
    const std::string text = golden_json(folder).dump(2);
    for (std::size_t length = 0; length < text.size(); ++length) expect_config_refused(text.substr(0, length), {});
    EXPECT_EQ(parse_hf_config(text, "x"), read_hf_config(golden(folder)));
  }
}

TEST(HfConfigRefusal, AChangedByteIsAcceptedOrRefusedAndNothingElse) {
  const std::string text = golden_json("llama-tied-scaled").dump(2);
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char byte : {'\0', '"', '{', '}', ',', '-', '9', '\xff'}) {
      std::string changed = text;
      changed[at] = byte;
      try {
        parse_hf_config(changed, "x");
      } catch (const UserError& error) {
        EXPECT_EQ(error.code(), ExitCode::bad_input_file);
      }
    }
  }
}

TEST(HfConfigRefusal, AFileThatIsMissingAFolderOrTooLargeIsRefused) {
  const auto refused = [](const std::filesystem::path& file, const std::string& word) {
    try {
      read_hf_config(file);
      ADD_FAILURE() << "accepted: " << file;
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input_file);
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  refused(golden("no-such-model"), "cannot open");
  refused(golden("llama-tiny").parent_path(), "is a folder");
  const auto large = std::filesystem::path(testing::TempDir()) / "lockstep-large-config.json";
  std::ofstream(large) << std::string((1 << 20) + 1, ' ');
  refused(large, "larger than 1048576 bytes");
  std::filesystem::remove(large);
}

}  // namespace
}  // namespace lockstep
