// Tokenizers as a user meets them: learned, checked against cases, used for token files, training and generating.
#include <gmock/gmock.h>

#include <fstream>

#include "data/token_file.h"
#include "data/tokenizer/tokenizer.h"
#include "support/program.h"
#include "support/run_results.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using tests::Outcome;
using tests::run_program;
using tests::TemporaryFolder;
namespace fs = std::filesystem;

const std::string kTokenizers = LOCKSTEP_SOURCE_DIR "/tests/golden/tokenizers/";

TEST(VerifyTokenizer, ComparesAFolderWithItsCases) {
  for (const char* kind : {"gpt2", "llama2", "llama3", "qwen2"}) {
    const Outcome result = run_program({"verify", "--tokenizer", kTokenizers + kind});
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("cases: ids and decoded texts are equal"));
  }
}

TEST(VerifyTokenizer, NamesTheFirstCaseThatDiffers) {
  const TemporaryFolder folder;
  fs::copy(kTokenizers + "llama3/tokenizer.json", folder / "tokenizer.json");
  fs::copy(kTokenizers + "gpt2/cases.json", folder / "cases.json");
  const Outcome result = run_program({"verify", "--tokenizer", folder.path()});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("the first: case 0, text '', ids: 1500 where nothing is expected"));
  EXPECT_EQ(run_program({"verify", "--tokenizer", folder / "none"}).code, 4);
  EXPECT_EQ(run_program({"verify", "--tokenizer", folder.path(), "--stories", "x"}).code, 2);
}

TEST(TrainTokenizer, WhatIsLearnedMakesTokenFilesAndTrainsAModelThatGeneratesText) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "The old rank waits for the new rank, and the gather ends.\n";
  std::ofstream(folder / "text.txt") << text;
  const Outcome learned =
      run_program({"train-tokenizer", folder / "text.txt", "--vocabulary", "300", "--out", folder / "tokenizer"});
  ASSERT_EQ(learned.code, 0) << learned.err;
  EXPECT_THAT(learned.out, HasSubstr("vocabulary "));
  // Else transformers gives models token_type_ids, which none here takes.
  EXPECT_THAT(tests::text_of(folder / "tokenizer/tokenizer_config.json"), HasSubstr("\"model_input_names\""));
  const Tokenizer tokenizer = Tokenizer::load(folder / "tokenizer");

  const Outcome written = run_program(
      {"tokenize", folder / "text.txt", "--tokenizer", folder / "tokenizer", "--out", folder / "text.tokens"});
  ASSERT_EQ(written.code, 0) << written.err;
  const TokenFile file(folder / "text.tokens");
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.tokens()));
  file.read(0, ids);
  EXPECT_EQ(tokenizer.decode(ids, Specials::skip), text);
  EXPECT_EQ(ids.back(), 0);  // <|endoftext|>

  const std::vector<std::string> run = {"--set", "model.preset=llama-1m", "--set", "model.vocabulary=300",
                                        "--set", "data.seq=32",           "--set", "train.steps=2",
                                        "--set", "train.global_batch=2"};
  const auto train = [&](std::vector<std::string> data) {
    std::vector<std::string> arguments = {"train", "--out", folder / "run"};
    arguments.insert(arguments.end(), run.begin(), run.end());
    arguments.insert(arguments.end(), data.begin(), data.end());
    return run_program(arguments);
  };
  const Outcome trained = train({"--set", "data.text=" + std::string(folder / "text.txt"), "--set",
                                 "data.tokenizer=" + std::string(folder / "tokenizer")});
  ASSERT_EQ(trained.code, 0) << trained.err;
  fs::remove_all(folder / "tokenizer");  // checkpoints keep it
  const Outcome said = run_program({"generate", folder / "run", "--prompt", "The old", "--max-tokens", "5"});
  EXPECT_EQ(said.code, 0) << said.err;
  const Outcome exported = run_program({"export", folder / "run", "--out", folder / "hf"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_TRUE(fs::exists(folder / "hf/tokenizer.json"));
  const Outcome again = run_program({"generate", folder / "hf", "--prompt", "The old", "--max-tokens", "5"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, said.out);
}

TEST(TrainTokenizer, EveryMistakeIsOneLineWithARemedy) {
  const TemporaryFolder folder;
  std::ofstream(folder / "text.txt") << "some text";
  const auto code = [&](std::vector<std::string> arguments) {
    const Outcome result = run_program(arguments);
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr("; ")) << result.err;
    return result.code;
  };
  EXPECT_EQ(code({"train-tokenizer", folder / "none", "--out", folder / "t"}), 4);
  EXPECT_EQ(code({"train-tokenizer", folder / "text.txt", "--out", folder / "text.txt"}), 2);
  EXPECT_EQ(code({"train-tokenizer", folder / "text.txt", "--out", folder / "t", "--vocabulary", "257", "--special",
                  "a", "--special", "b"}),
            2);
  EXPECT_EQ(code({"tokenize", folder / "text.txt", "--tokenizer", folder.path(), "--out", folder / "x"}), 4);
}

}  // namespace
}  // namespace lockstep
