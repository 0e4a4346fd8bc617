// A model's TOML: presets hold what they claim, writing and reading are inverse, mistakes are named.
#include "spec/model/model_toml.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "refusal_message.h"
#include "spec/model/hf_config.h"
#include "support/model_file.h"
#include "support/run_results.h"

namespace lockstep {
namespace {

const std::filesystem::path kPresetFolder = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "configs/models";

// Parameter counts: of the published checkpoints where there is one, else worked out by hand.
const std::map<std::string, std::int64_t> kPresets = {
    {"llama-1m", 1'066'112},        {"llama-5m", 4'999'424},         {"llama-15m", 15'191'712},
    {"llama-60m", 58'073'600},      {"llama-125m", 124'668'672},     {"gpt2", 124'439'808},
    {"gpt2-medium", 354'823'168},   {"gpt2-large", 774'030'080},     {"gpt2-xl", 1'557'611'200},
    {"llama2-7b", 6'738'415'616},   {"llama2-13b", 13'015'864'320},  {"llama2-70b", 68'976'648'192},
    {"llama3-8b", 8'030'261'248},   {"llama3-70b", 70'553'706'496},  {"llama3.1-405b", 405'853'388'800},
    {"llama3.2-1b", 1'235'814'400}, {"llama3.2-3b", 3'212'749'824},  {"mistral-7b", 7'248'023'552},
    {"qwen2.5-0.5b", 494'032'768},  {"qwen2.5-1.5b", 1'543'714'304}, {"qwen2.5-7b", 7'615'616'512},
    {"qwen3-0.6b", 596'049'920},    {"qwen3-1.7b", 1'720'574'976},   {"qwen3-8b", 8'190'735'360},
    {"smollm-1.7b", 1'711'376'384}, {"smol-1.7b", 1'812'039'680},    {"llama-1b", 1'498'482'688},
    {"llama-350m", 373'867'520},    {"llama-7b-4l", 1'134'596'096},  {"bench-a", 7'212'288},
    {"bench-b", 55'325'184},        {"qwen2.5-14b", 14'770'033'664}, {"qwen2.5-32b", 32'763'876'352},
};

std::filesystem::path preset_file(const std::string& name) { return kPresetFolder / (name + ".toml"); }

std::string with_commas(std::int64_t value) {
  const std::string digits = std::to_string(value);
  std::string out;
  for (std::size_t at = 0; at < digits.size(); ++at) {
    if (at != 0 && (digits.size() - at) % 3 == 0) out += ',';
    out += digits[at];
  }
  return out;
}

const std::string kSmall = R"([model]
family = "llama"
vocabulary = 101
layers = 2
width = 64
heads = 8
ffn_width = 160
max_positions = 128
)";

void expect_model_refused(const std::string& text, const std::vector<std::string>& words) {
  try {
    parse_model_toml(text, "some/model.toml");
    ADD_FAILURE() << "accepted: " << text.substr(0, 500);
  } catch (const UserError& error) {
    expect_message(error, ExitCode::usage, "some/model.toml", words);
  }
}

TEST(ModelPresets, EachHasThePublishedParameterCount) {
  for (const auto& [name, count] : kPresets) {
    SCOPED_TRACE(name);
    EXPECT_EQ(parameter_count(tests::read_model_toml(preset_file(name))), count);
  }
}

TEST(ModelPresets, EveryFileIsInTheListAndStatesItsCountAndSizes) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kPresetFolder)) {
    SCOPED_TRACE(entry.path().filename());
    ++files;
    ASSERT_TRUE(kPresets.contains(entry.path().stem().string()));
    const std::string text = tests::text_of(entry.path());
    const std::string title = text.substr(0, text.find('\n'));
    EXPECT_NE(title.find(": " + with_commas(parameter_count(tests::read_model_toml(entry.path()))) + " parameters."),
              std::string::npos)
        << title;
    for (const char* key : {"kv_heads", "head_width", "max_positions"}) {
      EXPECT_NE(text.find(std::string("\n") + key + " = "), std::string::npos) << key;
    }
  }
  EXPECT_EQ(files, kPresets.size());
}

TEST(ModelPresets, GiveThePublishedModelsWhatASizeDoesNotTell) {
  const ModelSpec large = tests::read_model_toml(preset_file("llama3.1-405b"));
  const RopeScaling scaling{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_positions = 8192};
  EXPECT_EQ(large.rope_scaling, scaling);
  EXPECT_EQ(large.rope_theta, 500000);
  EXPECT_EQ(large.norm_eps, 1e-5);
  EXPECT_TRUE(tests::read_model_toml(preset_file("qwen2.5-0.5b")).tied);
  EXPECT_FALSE(tests::read_model_toml(preset_file("llama-1b")).tied);
  EXPECT_EQ(tests::read_model_toml(preset_file("gpt2")).dropout, 0.1);
}

TEST(ModelToml, WritingAndReadingAreInverse) {
  for (const auto& [name, count] : kPresets) {
    const ModelSpec spec = tests::read_model_toml(preset_file(name));
    EXPECT_EQ(parse_model_toml(to_toml(spec), "x"), spec) << to_toml(spec);
  }
  for (const char* folder : {"llama-tiny", "llama-tied-scaled", "llama-mha-8l", "gpt2-tiny", "qwen2-tiny"}) {
    const ModelSpec spec =
        read_hf_config(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / folder / "config.json");
    EXPECT_EQ(parse_model_toml(to_toml(spec), "x"), spec);
  }
  // Values whose short decimal form would lose bits, each unlike its default.
  ModelSpec odd = parse_model_toml(kSmall, "x");
  odd.norm_eps = std::nextafter(1e-6, 1);
  odd.rope_theta = 1e6 / 3;
  odd.dropout = 0.1 + 0.2;
  odd.attention_dropout = std::nextafter(0.5, 1);
  odd.init_std = 1.0 / 24;
  odd.tied = odd.qkv_bias = odd.out_bias = odd.mlp_bias = true;
  odd.rope_scaling = {.factor = 1e5, .low_freq_factor = 1.0 / 3, .high_freq_factor = 4, .original_positions = 77};
  EXPECT_EQ(parse_model_toml(to_toml(odd), "x"), odd) << to_toml(odd);
}

TEST(ModelToml, LeftOutKeysHaveTheFamilysDefaults) {
  ModelSpec expected = family_defaults(Family::llama);
  expected.vocabulary = 101;
  expected.layers = 2;
  expected.width = 64;
  expected.heads = expected.kv_heads = expected.head_width = 8;
  expected.ffn_width = 160;
  expected.max_positions = 128;
  EXPECT_EQ(parse_model_toml(kSmall, "x"), expected);
  EXPECT_EQ(parse_model_toml(kSmall + "rope_theta = 10000", "x"), expected) << "a whole number for a fraction";
}

TEST(ModelToml, AMisspeltKeyComesWithTheNearest) {
  expect_model_refused(kSmall + "hed_width = 8", {":9: unknown key 'hed_width' in [model]", "'head_width'"});
  expect_model_refused(kSmall + "rope_teta = 8", {"'rope_teta'", "'rope_theta'"});
  expect_model_refused(kSmall + "[modle]\na = 1", {"'modle'", "'model'"});
  expect_model_refused(kSmall + "[model.rope_scaling]\nfacter = 8.0", {"'facter' in [model.rope_scaling]", "'factor'"});
  expect_model_refused(kSmall + '"' + std::string(9000, 'k') + "\\n\" = 1", {"unknown key 'kkk"});
}

TEST(ModelToml, AWrongValueIsNamedWithWhatIsExpected) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"kv_heads = \"8\"", {":9: 'kv_heads'", "a whole number from 1 to 2^40"}},
      {"kv_heads = 8.0", {"'kv_heads'", "a whole number"}},
      {"kv_heads = 0", {"'kv_heads'"}},
      {"kv_heads = -8", {"'kv_heads'"}},
      {"kv_heads = 1099511627777", {"'kv_heads'"}},
      {"kv_heads = 3", {"heads (8) is not a multiple of kv_heads (3)"}},
      {"head_width = 7", {"head_width (7) is odd"}},
      {"norm_eps = \"small\"", {"'norm_eps'", "a number"}},
      {"norm_eps = true", {"'norm_eps'", "a number"}},
      {"norm_eps = 0.0", {"norm_eps is 0"}},
      {"norm_eps = nan", {"norm_eps is nan"}},
      {"rope_theta = inf", {"rope_theta is inf"}},
      {"dropout = 1.0", {"dropout is 1"}},
      {"attention_dropout = -0.1", {"attention_dropout is -0.1"}},
      {"init_std = 2.0", {"init_std is 2"}},
      {"tied = 1", {"'tied'", "true or false"}},
      {"norm = \"batch\"", {"'norm'", "\"rms\", \"layer\""}},
      {"norm = 1", {"'norm'", "\"rms\", \"layer\""}},
      {"norm = \"layer\"", {"norm is not what family llama has"}},
      {"mlp = \"gelu\"", {"mlp is not"}},
      {"positions = \"learned\"", {"positions is not"}},
      {"qk_norm = true", {"qk_norm is not"}},
      {"in_out_weights = true", {"in_out_weights is not"}},
      {"qkv_bias = true", {"qkv_bias and out_bias differ", "qwen2"}},
      {"rope_scaling = 8", {"'rope_scaling'", "a table"}},
      {"rope_scaling.factor = 8", {"[model.rope_scaling] has no 'low_freq_factor'"}},
      {"rope_scaling = {factor=8,low_freq_factor=4,high_freq_factor=4,original_positions=8}",
       {"high_freq_factor is 4"}},
      {"rope_scaling = {factor=0.5,low_freq_factor=1,high_freq_factor=4,original_positions=8}", {"factor is 0.5"}},
      {"tied = ", {":9: not valid TOML"}},
      {"layers = 3", {":9: not valid TOML"}},  // a second time
  };
  for (const auto& [line, words] : cases) {
    SCOPED_TRACE(line);
    expect_model_refused(kSmall + line, words);
  }
}

TEST(ModelToml, AFamilysFixedStructureIsHeld) {
  std::string gpt2 = kSmall;
  gpt2.replace(gpt2.find("llama"), 5, "gpt2");
  EXPECT_EQ(parse_model_toml(gpt2, "x").norm, NormKind::layer);
  expect_model_refused(gpt2 + "kv_heads = 4", {"gpt2 has no grouped heads"});
  expect_model_refused(gpt2 + "head_width = 16", {"is not width (64)"});
  expect_model_refused(gpt2 + "out_bias = false", {"out_bias is not"});
  expect_model_refused(gpt2 + "rope_scaling = {factor=8,low_freq_factor=1,high_freq_factor=4,original_positions=8}",
                       {"positions are learned"});
}

TEST(ModelToml, AMissingKeyIsNamed) {
  std::istringstream lines(kSmall);
  for (std::string line; std::getline(lines, line);) {
    std::string text = kSmall;
    text.erase(text.find(line), line.size());
    SCOPED_TRACE(line);
    if (line == "[model]") {
      expect_model_refused(text, {"[top level]"});
    } else {
      expect_model_refused(text, {"[model] has no '" + line.substr(0, line.find(' ')) + "'"});
    }
  }
  expect_model_refused("", {"no table [model]"});
  expect_model_refused("model = 3", {"no table [model]"});
  expect_model_refused(kSmall + "[[model.rope_scaling]]", {"'rope_scaling'", "a table"});
}

TEST(ModelToml, APrefixNeverCrashes) {
  const std::string text = tests::text_of(preset_file("llama3.1-405b"));
  for (std::size_t length = 0; length < text.size(); ++length) {
    try {
      parse_model_toml(text.substr(0, length), "x");
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
    }
  }
}

TEST(ModelToml, DeepNestingAndLargeTextAreRefused) {
  std::string dotted = "a";
  while (dotted.size() < 16000) dotted += ".a";
  expect_model_refused(dotted + " = 1", {"'a'"});
  expect_model_refused("a = " + std::string(16000, '['), {});
  expect_model_refused(std::string(1 << 20, '#'), {"larger than 16384 bytes"});
}

}  // namespace
}  // namespace lockstep
