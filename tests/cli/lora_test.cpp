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

// As made from the folder of adapters, beside the base that it names or that is given.
TEST_P(LoraCommands, TheAdapterGeneratesAndScoresAsTheRunDoes) {
  const std::string adapter = folder_ / "adapter", moved = folder_ / "moved", other = folder_ / "other";
  ASSERT_EQ(run_program({"export", run(), "--out", adapter, "--adapter"}).code, 0);
  std::filesystem::copy(source(), moved);
  ASSERT_EQ(run_program({"export", run(), "--out", other}).code, 0);
  std::ofstream(folder_ / "ids.bin", std::ios::binary) << std::string("\1\0\5\0\11\0\3\0", 8);
  const auto both = [&](std::vector<std::string> more, const std::string& from) {
    std::vector<std::string> texts;
    for (std::vector<std::string> all :
         {std::vector<std::string>{"generate", from, "--tokens", "1 5 9", "--max-tokens", "12", "--temperature", "0"},
          {"eval", from, folder_ / "ids.bin", "--tokens", "--token-type", "u16"}}) {
      all.insert(all.end(), more.begin(), more.end());
      const Outcome o = run_program(all);
      EXPECT_EQ(o.code, 0) << o.err;
      texts.push_back(o.out);
    }
    return texts;
  };
  const auto wanted = both({}, run());
  EXPECT_EQ(both({}, adapter), wanted);
  EXPECT_EQ(both({"--base", moved}, adapter), wanted);
  EXPECT_EQ(both({"--base", moved}, run()), wanted);
  EXPECT_NE(both({}, source()), wanted) << "it has learned something";
  EXPECT_EQ(run_program({"export", run(), "--base", moved, "--out", folder_ / "merged"}).code, 0);

  const Outcome shown = run_program({"inspect", adapter});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("of rank 2, alpha 4: "));
  EXPECT_THAT(shown.out, HasSubstr(source()));

  const Outcome refused = run_program({"generate", adapter, "--tokens", "1", "--base", other});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("were trained beside another base than"));
  const Outcome whole = run_program({"generate", source(), "--tokens", "1", "--base", moved});
  EXPECT_EQ(whole.code, 2);
  EXPECT_THAT(whole.err, HasSubstr("is a whole model, not adapters of one; leave --base out"));
}

TEST_P(LoraCommands, ABaseThatIsGoneIsCalledOne) {
  const std::string base = folder_ / "base", out = folder_ / "second", adapter = folder_ / "adapter";
  std::filesystem::copy(source(), base);
  ASSERT_EQ(train_in(out, base, {}).code, 0);
  ASSERT_EQ(run_program({"export", out, "--out", adapter, "--adapter"}).code, 0);
  std::filesystem::rename(base, folder_ / "moved");
  const std::string words = base + " is not there, the base that adapters were trained beside; say where it is now";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"generate", out, "--tokens", "1"}, {"export", out, "--out", folder_ / "x"}}) {
    const Outcome o = run_program(command);
    EXPECT_EQ(o.code, 6) << o.err;
    EXPECT_THAT(o.err, HasSubstr(words));
  }
  const Outcome trained = run_program({"train", "--resume", out, "--set", "train.steps=8"});
  EXPECT_EQ(trained.code, 6) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr(words));
  EXPECT_THAT(trained.err, HasSubstr("--set model.hf=FOLDER to train"));
  EXPECT_EQ(
      run_program({"train", "--resume", out, "--set", "train.steps=8", "--set", "model.hf=" + (folder_ / "moved")})
          .code,
      0);

  const Outcome alone = run_program({"generate", adapter, "--tokens", "1"});
  EXPECT_EQ(alone.code, 6) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("holds adapters of '" + base + "', which is not there; name the model by --base"));
  EXPECT_THAT(run_program({"inspect", adapter}).out, HasSubstr(", which is not there"));
  EXPECT_EQ(run_program({"generate", adapter, "--tokens", "1", "--max-tokens", "2", "--base", folder_ / "moved"}).code,
            0);
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
