// Conversations from the command line: marked, trained on, and answered from an export that is complete.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/token_file.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ConversationCommands : public ::testing::Test {
 protected:
  Outcome run(const std::string& command) const {
    const std::string where = fs::path(LOCKSTEP_BINARY).parent_path().string();
    return Program({}, folder_.path(), {"/bin/bash", "-c", "export PATH='" + where + "':$PATH; " + command}).wait();
  }
  std::string good(const std::string& command) const {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 0) << command << "\n" << outcome.err;
    return outcome.out + outcome.err;
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TemporaryFolder folder_;
};

constexpr const char* kTemplate =
    "{% for m in messages %}{% if m.role == 'assistant' %}<|bot|>{% generation %}{{ m.content + eos_token }}{% "
    "endgeneration %}{% else %}<|{{ m.role }}|>{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt "
    "%}<|bot|>{% endif %}";
constexpr const char* kRun = R"([model]
family = "llama"
vocabulary = 320
layers = 2
width = 32
heads = 4
kv_heads = 2
ffn_width = 64
max_positions = 64
[data]
tokens = "text.tokens"
tokenizer = "tok"
seq = 16
eval_share = 0
[train]
steps = 4
global_batch = 4
[run]
threads = 1
)";

TEST_F(ConversationCommands, GoFromTextToAnExportThatAnswers) {
  write("text.txt", std::string("Ada lives at the lake. Ben lives on the hill. Where does Ada live? At the lake.\n") +
                        "Where does Ben live? On the hill. Ada has a goose, and Ben has a goat.\n");
  good(
      "lockstep train-tokenizer text.txt --vocabulary 320 --least 1 --out tok --special '<|end|>' --special '<|user|>' "
      "--special '<|bot|>'");
  good(
      "for i in $(seq 20); do cat text.txt; done > more.txt; lockstep tokenize more.txt --tokenizer tok --out "
      "text.tokens");
  write("run.toml", kRun);
  good("lockstep train run.toml --out base");
  // The tokenizer that the run was given beside its tokens comes along, and what ends a text with it.
  good("lockstep export base --out model");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    EXPECT_EQ(read("model/" + std::string(name)), read("tok/" + std::string(name)));
  EXPECT_EQ(nlohmann::json::parse(read("model/generation_config.json")), (nlohmann::json{{"eos_token_id", 0}}));
  write("model/chat_template.jinja", kTemplate);
  write("model/special_tokens_map.json", "{\"eos_token\": \"<|end|>\"}");

  write(
      "talks.jsonl",
      R"({"messages": [{"role": "user", "content": "Where does Ada live?"}, {"role": "assistant", "content": "At the lake."}]}
{"prompt": "Ben has", "completion": " a goat."}
{"messages": [{"role": "user", "content": "Is nobody there?"}]}
)");
  const std::string said = good("lockstep tokenize talks.jsonl --conversations --tokenizer model --out talks.tokens");
  EXPECT_THAT(said, HasSubstr("1 conversations without an answer of the assistant were passed over"));
  const TokenFile file(folder_ / "talks.tokens");
  EXPECT_EQ(file.documents(), 2);
  EXPECT_THAT(said, HasSubstr(fmt::format("{} tokens of answers are targets", file.header().targets)));
  EXPECT_THAT(good("lockstep data inspect talks.tokens --tokenizer model"), HasSubstr("tokens, of answers: "));
  EXPECT_THAT(good("lockstep data inspect talks.tokens --tokenizer model --sample 0 --seq " +
                   std::to_string(file.document(1).first)),
              HasSubstr("<|user|>Where does Ada live?<|bot|>⟦At the lake.<|end|>⟧\n"));
  // An end that generation does not know is named.
  good("cp -r model other; sed -i 's/m.content + eos_token/m.content/' other/chat_template.jinja");
  EXPECT_THAT(good("head -1 talks.jsonl | lockstep tokenize - --conversations --tokenizer other --out other.tokens"),
              HasSubstr("1 conversations end with an answer whose last token is '"));

  const std::string tune =
      "--set model.hf=model --set data.tokens=many.tokens --set data.documents=nosplit --set data.seq=32 --set "
      "data.eval_share=0.2 --set train.global_batch=4 --set optim.lr=0.02 --set run.threads=1 --set optim.warmup=0 "
      "--set "
      "optim.schedule=constant";
  good(
      "for i in $(seq 16); do head -2 talks.jsonl; done > many.jsonl; lockstep tokenize many.jsonl --conversations "
      "--tokenizer model --out many.tokens");
  EXPECT_THAT(good("lockstep train " + tune + " --set train.steps=20 --out tuned"),
              HasSubstr("tokens of answers alone count in loss and accuracy"));
  good("lockstep train --resume tuned --layout dp=2,tp=2 --set train.steps=60");
  good("rm -r model");
  good("lockstep export tuned --out answers");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
    EXPECT_EQ(read("answers/" + std::string(name)), read("tok/" + std::string(name)));
  EXPECT_EQ(read("answers/chat_template.jinja"), kTemplate);
  EXPECT_EQ(read("answers/special_tokens_map.json"), "{\"eos_token\": \"<|end|>\"}");
  EXPECT_EQ(nlohmann::json::parse(read("answers/generation_config.json")), (nlohmann::json{{"eos_token_id", 0}}));
  EXPECT_TRUE(fs::exists(folder_ / "answers/config.json") && fs::exists(folder_ / "answers/model.safetensors"));
  const std::string answer =
      good("lockstep generate answers --chat --prompt 'Where does Ada live?' --temperature 0 --threads 1 --json");
  EXPECT_EQ(nlohmann::json::parse(answer)["text"], "At the lake.");
  EXPECT_EQ(nlohmann::json::parse(answer)["finish"], "end");
  // Perplexity is of the answers alone.
  const std::string perplexity = good("lockstep eval answers talks.tokens --tokens --threads 1 --json");
  EXPECT_EQ(nlohmann::json::parse(perplexity)["tokens"], file.header().targets);
}

}  // namespace
}  // namespace lockstep::tests
