// Folders of adapters: what PEFT writes is read, and what would change their meaning is refused by its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/peft_adapters.h"
#include "checkpoint/safetensors_writer.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kAt = "base_model.model.model.layers.0.self_attn.q_proj.";
const std::vector<LogicalTensor> kBase{{"model.layers.0.self_attn.q_proj.weight", {6, 4}}, {"model.norm.weight", {4}}};

class PeftAdaptersIn : public ::testing::Test {
 protected:
  // As a recent PEFT writes it.
  json config() const {
    return {{"peft_type", "LORA"},
            {"task_type", "CAUSAL_LM"},
            {"base_model_name_or_path", "somebody/model"},
            {"r", 2},
            {"lora_alpha", 8},
            {"target_modules", {"q_proj"}},
            {"bias", "none"},
            {"use_dora", false},
            {"use_rslora", false},
            {"modules_to_save", nullptr},
            {"rank_pattern", json::object()},
            {"alpha_pattern", json::object()},
            {"auto_mapping", nullptr},
            {"lora_dropout", 0.1},
            {"init_lora_weights", true}};
  }
  void write(const json& config,
             const std::vector<LogicalTensor>& tensors = {{kAt + std::string("lora_A.weight"), {2, 4}},
                                                          {kAt + std::string("lora_B.weight"), {6, 2}}}) {
    std::ofstream(folder_ / kAdapterConfigName) << config.dump();
    std::vector<NamedTensor> all;
    for (const LogicalTensor& t : tensors)
      all.push_back({t.name, ConstTensor(values_.data(), DType::f32, Device::cpu, Shape(std::span(t.shape)))});
    write_safetensors(folder_ / kAdapterWeightsName, all);
  }
  std::string refusal() const {
    try {
      PeftAdapters(folder_.path()).require_for(kBase, false);
      return "";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input_file);
      return error.what();
    }
  }
  TemporaryFolder folder_;
  std::vector<float> values_ = std::vector<float>(64, 0.5F);
};

TEST_F(PeftAdaptersIn, AFolderAreRead) {
  write(config());
  EXPECT_EQ(refusal(), "");
  const PeftAdapters adapters(folder_.path());
  EXPECT_TRUE(holds_adapters_alone(folder_.path()));
  EXPECT_EQ(adapters.base(), "somebody/model");
  EXPECT_EQ(adapters.lora().rank, 2);
  EXPECT_EQ(adapters.lora().alpha, 8);
  EXPECT_EQ(adapters.parameters(), 20);
  EXPECT_TRUE(adapters.adapts("model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(adapters.adapts("model.layers.0.self_attn.k_proj"));
  std::ofstream(folder_ / "config.json") << "{}";
  EXPECT_FALSE(holds_adapters_alone(folder_.path())) << "a model's folder, whatever else is in it";
}

TEST_F(PeftAdaptersIn, OtherKindsAreRefusedByTheirName) {
  const std::vector<std::pair<const char*, json>> fields{{"use_dora", true},
                                                         {"use_rslora", true},
                                                         {"bias", "all"},
                                                         {"modules_to_save", {"lm_head"}},
                                                         {"rank_pattern", {{"q_proj", 4}}},
                                                         {"alpha_pattern", {{"q_proj", 4}}},
                                                         {"lora_bias", true},
                                                         {"peft_type", "IA3"},
                                                         {"r", 0}};
  for (const auto& [key, value] : fields) {
    json other = config();
    other[key] = value;
    write(other);
    EXPECT_THAT(refusal(), HasSubstr(key)) << value.dump();
  }
}

TEST_F(PeftAdaptersIn, TensorsThatDoNotFitTheBaseAreNamed) {
  const std::string a = kAt + std::string("lora_A.weight"), b = kAt + std::string("lora_B.weight");
  write(config(), {{a, {2, 4}}});
  EXPECT_THAT(refusal(), HasSubstr("there is no tensor '" + b + "'"));
  write(config(), {{a, {2, 5}}, {b, {6, 2}}});
  EXPECT_THAT(refusal(), HasSubstr("is [2, 5], and the base makes it [2, 4]"));
  write(config(), {{a, {2, 4}}, {b, {6, 2}}, {"base_model.model.lm_head.lora_A.weight", {2, 4}}});
  EXPECT_THAT(refusal(), HasSubstr("'base_model.model.lm_head.lora_A.weight' is of no weight of the base"));
  write(config(), {});
  EXPECT_THAT(refusal(), HasSubstr("there are no adapters in it"));
}

}  // namespace
}  // namespace lockstep::tests
