// model.from and what an export keeps of a Hugging Face folder, as a user meets them: chains of runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/golden.h"
#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Files of which no byte may change, and which are no text that is read.
const std::map<std::string, std::string> kKept = {{"tokenizer.json", "{ \"model\" :\t1 }\n"},
                                                  {"tokenizer.model", std::string("\0\xff\n\r\x80", 5)},
                                                  {"special_tokens_map.json", "{\"eos_token\":\"</s>\"}"},
                                                  {"generation_config.json", "{\"eos_token_id\":[2,5]}"},
                                                  {"chat_template.jinja", "{% for m in messages %}…{% endfor %}"},
                                                  {"merges.txt", ""}};

class Chains : public ::testing::Test {
 protected:
  // A Hugging Face folder with a tokenizer, and a file that is nobody's.
  void SetUp() override {
    fs::copy(kGolden + "llama-tiny", folder_.path() / "hf", fs::copy_options::recursive);
    fs::remove(folder_ / "hf/expected.safetensors");
    for (const auto& [name, bytes] : kKept) std::ofstream(folder_ / ("hf/" + name), std::ios::binary) << bytes;
    std::ofstream(folder_ / "hf/README.md") << "of the old model";
    json config = json::parse(text_of(kGolden + "llama-tiny/config.json"));
    config["eos_token_id"] = {2, 5};
    config["pad_token_id"] = 7;
    config["prefix"] = "hello";
    std::ofstream(folder_ / "hf/config.json") << config.dump();
  }

  std::vector<std::string> train(const std::string& out, std::vector<std::string> more) const {
    std::vector<std::string> all{"train", "--out", folder_ / out};
    const auto set = [&](const std::string& setting) { all.insert(all.end(), {"--set", setting}); };
    for (const char* setting : {"data.example=false", "data.synthetic.vocabulary=16", "data.synthetic.order=1",
                                "data.seq=16", "train.steps=2", "train.global_batch=4", "train.save_every=1",
                                "train.keep=1", "train.eval_every=0", "optim.warmup=0", "run.threads=1"})
      set(setting);
    for (const std::string& one : more)
      one.starts_with("-") || one.find('=') == std::string::npos ? all.push_back(one) : set(one);
    return all;
  }
  Outcome run(const std::string& out, const std::vector<std::string>& more) const {
    Outcome o = run_program(train(out, more));
    EXPECT_EQ(o.code, 0) << o.err;
    return o;
  }
  std::string hf() const { return "model.hf=" + (folder_ / "hf"); }
  std::string from(const std::string& run) const { return "model.from=" + (folder_ / run); }

  void expect_export_keeps_all(const std::string& run) const {
    const std::string to = folder_ / (run + "-export");
    const Outcome o = run_program({"export", folder_ / run, "--out", to});
    ASSERT_EQ(o.code, 0) << o.err;
    for (const auto& [name, bytes] : kKept) EXPECT_EQ(text_of(fs::path(to) / name), bytes) << run << ": " << name;
    EXPECT_FALSE(fs::exists(to + "/README.md"));
    const json config = json::parse(text_of(to + "/config.json"));
    EXPECT_EQ(config.at("eos_token_id"), json({2, 5})) << run;
    EXPECT_EQ(config.at("bos_token_id"), 1) << run;
    EXPECT_EQ(config.at("pad_token_id"), 7) << run;
    EXPECT_EQ(config.at("prefix"), "hello") << run;
    EXPECT_EQ(run_program({"export", folder_ / run, "--out", to}).code, 0) << "over itself";
    EXPECT_EQ(run_program({"inspect", to}).code, 0);
  }

  TemporaryFolder folder_;
};

TEST_F(Chains, AnExportKeepsTheFilesAndIdsOfTheFolderAtTheBeginningOfTheChain) {
  run("a", {hf()});
  fs::rename(folder_ / "hf", folder_ / "elsewhere");  // from now on nobody finds it
  expect_export_keeps_all("a");
  run("a", {hf(), "train.steps=3", "--resume", folder_ / "a"});
  expect_export_keeps_all("a");
  run("b", {hf(), "train.steps=4", "--resume", folder_ / "a"});  // into another folder
  fs::remove_all(folder_ / "a");
  run("c", {from("b"), "data.synthetic.seed=5", "--ranks", "2"});
  fs::remove_all(folder_ / "b");
  expect_export_keeps_all("c");
  EXPECT_THAT(run_program({"inspect", folder_ / "c/checkpoints/step-00000002"}).out, HasSubstr("tokenizer.json"));
  // What is kept is part of what is whole.
  std::ofstream(folder_ / "c/checkpoints/step-00000002/hf-tokenizer.json") << "{}";
  const Outcome damaged = run_program({"export", folder_ / "c", "--out", folder_ / "d"});
  EXPECT_EQ(damaged.code, 6);
  EXPECT_THAT(damaged.err, HasSubstr("hf-tokenizer.json"));
}

TEST_F(Chains, ANewModelsExportHasNoTokenizer) {
  run("a", {"model.preset=llama-1m"});
  ASSERT_EQ(run_program({"export", folder_ / "a", "--out", folder_ / "e"}).code, 0);
  EXPECT_TRUE(json::parse(text_of(folder_ / "e/config.json")).at("eos_token_id").is_null());
  EXPECT_FALSE(fs::exists(folder_ / "e/tokenizer.json"));
  EXPECT_THAT(text_of(folder_ / "a/checkpoints/step-00000002/manifest.json"), HasSubstr("\"version\":1,"));
}

TEST_F(Chains, TrainingStartsFromARunAndIsResumedWithoutIt) {
  run("a", {hf()});
  const Outcome begun = run("b", {from("a"), "data.synthetic.seed=5", "train.steps=4"});
  const std::string start = folder_ / "a/checkpoints/step-00000002";
  EXPECT_THAT(begun.out, HasSubstr("starting from the weights of " + start));
  EXPECT_THAT(text_of(folder_ / "b/run.toml"), AllOf(HasSubstr("from = \"" + start + "\""), HasSubstr("layers = 2")));
  const auto losses = losses_in(folder_ / "b");

  // In part, and then on without the first: from its folder, and by the command that began it.
  run("c", {from("a"), "data.synthetic.seed=5", "train.steps=4", "layout.tp=2"});
  run("d", {from("a"), "data.synthetic.seed=5", "train.steps=2", "optim.schedule=constant"});
  fs::remove_all(folder_ / "a");
  EXPECT_EQ(run_program({"train", "--resume", folder_ / "d", "--set", "train.steps=3"}).code, 0);
  run("d", {from("a"), "data.synthetic.seed=5", "train.steps=4", "optim.schedule=constant", "--resume"});
  EXPECT_EQ(losses_in(folder_ / "d").size(), 4u);
  EXPECT_EQ(losses_in(folder_ / "d")[0], losses[0]);
  EXPECT_NEAR(losses_in(folder_ / "c")[0], losses[0], 1e-5);

  for (const std::vector<std::string>& other : {std::vector<std::string>{"plan", folder_ / "b/run.toml"},
                                                {"inspect", folder_ / "b"},
                                                {"generate", folder_ / "b", "--tokens", "1 2", "--max-tokens", "2"}}) {
    const Outcome o = run_program(other);
    EXPECT_EQ(o.code, 0) << other[0] << ": " << o.err;
  }
}

// Commands that take a run take this one too.
TEST_F(Chains, PlansVerifiesAndComparesARunThatStartsFromAnother) {
  run("a", {hf()});
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"plan", "--layout", "dp=2,zero=3"},
        {"verify", "--layout", "dp=1", "--layout", "tp=2", "--set", "precision.compute=fp64", "--steps", "2"},
        {"compare", "--layout", "dp=1", "--layout", "dp=2", "--steps", "2"}}) {
    std::vector<std::string> all = train("unused", {from("a")});
    all.erase(all.begin(), all.begin() + 3);
    all.insert(all.begin(), command[0]);
    all.insert(all.end(), command.begin() + 1, command.end());
    const Outcome o = run_program(all);
    EXPECT_EQ(o.code, 0) << command[0] << ": " << o.err;
  }
}

TEST_F(Chains, EveryMistakeIsOneLineWithARemedy) {
  run("a", {hf()});
  run("broken", {hf()});
  std::ofstream(folder_ / "broken/checkpoints/step-00000002/state-00000-of-00001.safetensors", std::ios::app) << "x";
  fs::create_directory(folder_ / "empty");
  struct Mistake {
    std::vector<std::string> arguments;
    int code;
    std::string message;
  };
  const Mistake mistakes[] = {
      {train("m", {from("nothing")}), 6, "there is no folder " + (folder_ / "nothing")},
      {train("m", {from("empty")}), 6, "holds no whole checkpoint"},
      {train("m", {from("broken")}), 6, "holds no whole checkpoint"},
      {train("m", {from("broken/checkpoints/step-00000002")}), 6, "the checkpoint is damaged"},
      {train("m", {from("hf")}), 6, "is a Hugging Face folder, no run; use model.hf"},
      {train("m", {from("a"), "model.layers=3"}), 2, "[model] has from and also layers"},
      {train("m", {from("a"), "model.preset=llama-1m"}), 2, "[model] has both preset and from"},
      {train("m", {from("a"), "data.synthetic.vocabulary=200"}), 2,
       "the model's vocabulary (128) is smaller than the data's (200, synthetic); the weights of model.from have a "
       "fixed"},
      {train("a", {from("a"), "--overwrite"}), 2, "--overwrite would remove " + (folder_ / "a")},
      {train("a", {from("a")}), 2, "holds a run already"},
  };
  for (const Mistake& mistake : mistakes) {
    const Outcome o = run_program(mistake.arguments);
    EXPECT_EQ(o.code, mistake.code) << o.err;
    EXPECT_THAT(o.err, AllOf(HasSubstr(mistake.message), HasSubstr("; "))) << mistake.message;
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
    EXPECT_FALSE(fs::exists(folder_ / "m/run.toml"));
  }
  EXPECT_EQ(run_program({"inspect", folder_ / "a"}).code, 0) << "untouched";
}

}  // namespace
}  // namespace lockstep::tests
