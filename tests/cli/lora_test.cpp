// LoRA as a user has it: trained beside a Hugging Face folder, exported merged and alone, and made to talk.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/hf_folder.h"
#include "spec/model/hf_config.h"
#include "spec/model/projections.h"
#include "support/golden.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

class LoraCommands : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const Outcome trained = train({"--ranks", "2"});
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  std::string source() const { return kGolden + GetParam(); }
  std::string run() const { return folder_ / "run"; }
  Outcome train(const std::vector<std::string>& more) const { return train_in(run(), source(), more); }
  Outcome train_in(const std::string& out, const std::string& from, const std::vector<std::string>& more) const {
    std::vector<std::string> all{"train", std::string(LOCKSTEP_SOURCE_DIR) + "/configs/runs/synthetic.toml"};
    for (const std::string& set :
         {"model.hf=" + from, std::string("data.synthetic.vocabulary=16"), std::string("data.seq=16"),
          std::string("train.steps=6"), std::string("train.global_batch=4"), std::string("train.eval_every=0"),
          std::string("optim.schedule=constant"), std::string("optim.warmup=0"), std::string("optim.lr=0.02"),
          std::string("lora.rank=2"), std::string("lora.alpha=4")})
      all.insert(all.end(), {"--set", set});
    all.insert(all.end(), {"--out", out});
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  }
  TemporaryFolder folder_;
};

TEST_P(LoraCommands, MergedExportGeneratesWhatTheRunDoes) {
  const Outcome merged = run_program({"export", run(), "--out", folder_ / "merged"});
  ASSERT_EQ(merged.code, 0) << merged.err;
  const HfFolder before(source()), after(folder_ / "merged");
  EXPECT_EQ(after.spec(), before.spec());
  const std::vector<std::string> rest{"--tokens", "1 5 9", "--max-tokens", "24", "--temperature", "2", "--seed", "3"};
  const auto text = [&](const std::string& from) {
    std::vector<std::string> all{"generate", from};
    all.insert(all.end(), rest.begin(), rest.end());
    const Outcome o = run_program(all);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.out;
  };
  EXPECT_EQ(text(run()), text(folder_ / "merged"));
  EXPECT_NE(text(run()), text(source())) << "it has learned something";
  const Outcome cut = run_program(
      {"generate", run(), "--tokens", "1 5 9", "--max-tokens", "24", "--temperature", "2", "--seed", "3", "--pp", "2"});
  EXPECT_EQ(cut.out, text(run()));
}

TEST_P(LoraCommands, TheAdapterIsAFolderThatPeftKnows) {
  const Outcome exported = run_program({"export", run(), "--out", folder_ / "adapter", "--adapter"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  const ModelSpec model = HfFolder(source()).spec();
  std::ifstream text(folder_ / "adapter/adapter_config.json");
  const auto config = nlohmann::json::parse(text);
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["task_type"], "CAUSAL_LM");
  EXPECT_EQ(config["r"], 2);
  EXPECT_EQ(config["lora_alpha"], 4.0);
  EXPECT_EQ(config["bias"], "none");
  EXPECT_EQ(config["fan_in_fan_out"], model.in_out_weights);
  EXPECT_EQ(config["base_model_name_or_path"], source());
  EXPECT_EQ(config["target_modules"].size(), projections_of(model).size());
  const SafetensorsFile file(folder_ / "adapter/adapter_model.safetensors");
  EXPECT_EQ(std::ssize(file.entries()), 2 * model.layers * std::ssize(projections_of(model)));
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    for (const Projection& p : projections_of(model)) {
      const std::string at =
          fmt::format("base_model.model.{}.{}.{}.lora_",
                      model.family == Family::gpt2 ? "transformer.h" : "model.layers", layer, p.name);
      ASSERT_TRUE(file.contains(at + "A.weight") && file.contains(at + "B.weight")) << at;
      EXPECT_EQ(file.find(at + "A.weight")->shape, (std::vector<std::int64_t>{2, p.in}));
      EXPECT_EQ(file.find(at + "B.weight")->shape, (std::vector<std::int64_t>{p.out, 2}));
    }
}

TEST_P(LoraCommands, DoNotReplaceTheWeightsThatTheyBelongTo) {
  ASSERT_EQ(run_program({"export", run(), "--out", folder_ / "base"}).code, 0);
  const std::string out = folder_ / "second";
  ASSERT_EQ(train_in(out, folder_ / "base", {}).code, 0);
  for (const char* form : {"--adapter", "--replace"}) {
    const Outcome refused = run_program({"export", out, "--out", folder_ / "base", form});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err,
                HasSubstr("holds the weights that these adapters were trained beside; name another folder"));
  }
  EXPECT_EQ(run_program({"export", out, "--out", folder_ / "merged"}).code, 0);
}

TEST_P(LoraCommands, ResumeAndTellWhatIsFrozen) {
  const Outcome more = train({"--set", "train.steps=8", "--resume", "auto", "--layout", "tp=1,pp=2,micro=2"});
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_THAT(more.out, HasSubstr(") frozen, "));
  const Outcome whole = run_program({"export", run(), "--out", folder_ / "again"});
  EXPECT_EQ(whole.code, 0) << whole.err;
}

INSTANTIATE_TEST_SUITE_P(Golden, LoraCommands, ::testing::Values("llama-tiny", "gpt2-tiny"),
                         [](const auto& info) { return info.param.substr(0, info.param.find('-')); });

}  // namespace
}  // namespace lockstep::tests
