// inspect, tokenize, export, bench and plan as a user meets them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

class Commands : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    std::filesystem::create_directory(*folder_ / "text");
    std::ofstream(*folder_ / "text/a.txt") << std::string(3000, 'a');
    std::ofstream(*folder_ / "text/b.txt") << std::string(2000, 'b');
    ASSERT_EQ(run_program({"tokenize", *folder_ / "text", "--out", *folder_ / "text.tokens"}).code, 0);
    const Outcome o = run_program(train({"--out", *folder_ / "run"}));
    ASSERT_EQ(o.code, 0) << o.err;
  }
  static void TearDownTestSuite() { delete folder_; }
  static std::vector<std::string> small() {
    std::vector<std::string> all;
    for (const char* set : {"model.preset=llama-1m", "model.vocabulary=257", "train.steps=2", "train.global_batch=2",
                            "optim.warmup=0", "data.seq=32", "train.save_every=1", "train.eval_every=1"}) {
      all.push_back("--set");
      all.push_back(set);
    }
    all.push_back("--set");
    all.push_back("data.tokens=" + (*folder_ / "text.tokens"));
    return all;
  }
  static std::vector<std::string> train(const std::vector<std::string>& more) {
    std::vector<std::string> all = small();
    all.insert(all.begin(), "train");
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static TemporaryFolder* folder_;
};
TemporaryFolder* Commands::folder_ = nullptr;

std::string out_of(const std::vector<std::string>& arguments) {
  const Outcome o = run_program(arguments);
  EXPECT_EQ(o.code, 0) << o.err;
  return o.out;
}

TEST_F(Commands, InspectKnowsEverythingThatLockstepWrites) {
  EXPECT_THAT(out_of({"inspect", *folder_ / "text.tokens"}), HasSubstr("5,002, vocabulary 257"));
  const std::string run = out_of({"inspect", *folder_ / "run"});
  EXPECT_THAT(run, HasSubstr("step-00000002 whole"));
  EXPECT_THAT(run, HasSubstr("metrics      4 lines"));
  EXPECT_THAT(out_of({"inspect", *folder_ / "run/checkpoints/step-00000002"}),
              HasSubstr("of step 2: 2 updates, 4 samples"));
  EXPECT_THAT(out_of({"inspect", *folder_ / "run/checkpoints/step-00000002/state-00000-of-00001.safetensors"}),
              HasSubstr("weight/model.norm.weight"));
}

TEST_F(Commands, InspectSaysWhatIsDamaged) {
  const std::string copy = *folder_ / "copy";
  std::filesystem::copy(*folder_ / "run", copy, std::filesystem::copy_options::recursive);
  std::filesystem::resize_file(copy + "/checkpoints/step-00000002/state-00000-of-00001.safetensors", 100);
  const Outcome run = run_program({"inspect", copy});
  EXPECT_EQ(run.code, 6);
  EXPECT_THAT(run.out, HasSubstr("step-00000001 whole"));
  EXPECT_THAT(run.out, HasSubstr("step-00000002 damaged"));
  EXPECT_EQ(run_program({"inspect", copy + "/checkpoints/step-00000002"}).code, 6);
  std::filesystem::copy(*folder_ / "text.tokens", copy + "/bad.tokens");
  {
    std::fstream file(copy + "/bad.tokens", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(500);
    file.put('x');
  }
  EXPECT_EQ(run_program({"inspect", copy + "/bad.tokens"}).code, 4);
}

TEST_F(Commands, ExportWritesAModelFolderInTheTypeAskedFor) {
  EXPECT_THAT(out_of({"export", *folder_ / "run", "--out", *folder_ / "hf", "--dtype", "bf16"}),
              HasSubstr("in bf16, of step 2"));
  EXPECT_THAT(out_of({"inspect", *folder_ / "hf"}), HasSubstr("llama, 4 layers"));
  EXPECT_THAT(out_of({"inspect", *folder_ / "hf/model.safetensors"}), HasSubstr("BF16"));
}

TEST_F(Commands, BenchGivesItsItemsInTheDocumentedForm) {
  std::vector<std::string> arguments = small();
  arguments.insert(arguments.begin(), {"bench", "--json", "--rounds", "2"});
  const auto items = nlohmann::json::parse(out_of(arguments));
  std::map<std::string, nlohmann::json> by_name;
  for (const auto& item : items) {
    for (const char* key : {"name", "value", "unit", "ceiling", "ratio"}) EXPECT_TRUE(item.contains(key)) << item;
    EXPECT_GT(item["value"], 0) << item;
    by_name[item["name"]] = item;
  }
  for (const char* name : {"fma_peak", "copy_bandwidth", "attention_forward", "weight_products", "step", "step_tokens"})
    EXPECT_TRUE(by_name.contains(name)) << name;
  const double alone = by_name["weight_products"]["value"], ceiling = by_name["step"]["ceiling"];
  EXPECT_GT(ceiling, alone / 4);  // the same products, timed beside each step
  EXPECT_LT(ceiling, alone * 4);
}

TEST_F(Commands, MistakesAreOneLineWithARemedy) {
  std::ofstream(*folder_ / "plain.txt") << "just text";
  const std::vector<std::tuple<std::vector<std::string>, int, std::string>> cases{
      {{"inspect", *folder_ / "absent"}, 4, "there is no"},
      {{"inspect", *folder_ / "text"}, 4, "that lockstep knows"},
      {{"inspect", *folder_ / "plain.txt"}, 4, "plain.txt"},
      {{"inspect"}, 2, "path is required"},
      {{"export", *folder_ / "text", "--out", *folder_ / "e"}, 6, "holds no whole checkpoint"},
      {{"export", *folder_ / "run"}, 2, "--out is required"},
      {{"export", *folder_ / "run", "--out", *folder_ / "text"}, 2, "name another folder, or use --replace"},
      {{"export", *folder_ / "run", "--out", *folder_ / "e", "--dtype", "int8"}, 2, "--dtype"},
      {{"tokenize", *folder_ / "absent", "--out", *folder_ / "t"}, 4, "absent"},
      {{"tokenize", *folder_ / "text"}, 2, "--out is required"},
      {{"bench", "--rounds", "0"}, 2, "--rounds"},
      {{"bench", "--set", "model.preset=llama3.1-405b"}, 3, "the run needs"},
  };
  for (const auto& [arguments, code, says] : cases) {
    const Outcome o = run_program(arguments);
    EXPECT_EQ(o.code, code) << arguments[0] << " " << o.err;
    EXPECT_THAT(o.err, HasSubstr(says));
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_THAT(o.err, HasSubstr(";"));
  }
}

}  // namespace
}  // namespace lockstep::tests
