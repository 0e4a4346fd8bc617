// lockstep generate as a user meets it: from a run folder, a checkpoint and a Hugging Face folder, and one clear line
// for every mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "support/golden.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

constexpr int kPositions = 48;

// Two runs of a few steps: one on bytes of text, one on synthetic tokens.
class GenerateCommand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = ::testing::TempDir() + "lockstep-generate-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    const std::string tiny =
        " --set model.layers=2 --set model.width=32 --set model.heads=4 --set model.kv_heads=2 --set "
        "model.head_width=8 "
        "--set model.ffn_width=48 --set model.max_positions=48 --set data.seq=32 --set train.steps=3 --set "
        "train.global_batch=2 --set train.eval_every=0 --set optim.warmup=0 --set run.threads=1";
    const Outcome bytes = run_in_shell("train" + tiny + " --out " + text_run());
    ASSERT_EQ(bytes.code, 0) << bytes.out;
    const Outcome ids = run_in_shell("train " + std::string(LOCKSTEP_SOURCE_DIR) + "/configs/runs/synthetic.toml" +
                                     tiny + " --set optim.schedule=constant --out " + id_run());
    ASSERT_EQ(ids.code, 0) << ids.out;
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

  static std::string text_run() { return folder_ + "/bytes"; }
  static std::string id_run() { return folder_ + "/ids"; }
  static nlohmann::json json_of(const std::string& arguments) {
    const Outcome o = run_in_shell("generate " + arguments + " --json");
    EXPECT_EQ(o.code, 0) << o.out;
    return nlohmann::json::parse(o.out);
  }

  static std::string folder_;
};
std::string GenerateCommand::folder_;

TEST_F(GenerateCommand, GoesOnWithATextFromARunFolder) {
  const Outcome o = run_in_shell("generate " + text_run() + " --prompt 'Once' --max-tokens 20");
  EXPECT_EQ(o.code, 0) << o.out;
  EXPECT_THAT(o.out, ::testing::EndsWith("\n"));
  const auto json = json_of(text_run() + " --prompt 'Once' --max-tokens 20");
  EXPECT_EQ(json["text"].get<std::string>() + "\n", o.out);
  EXPECT_EQ(json["prompt_tokens"], nlohmann::json({'O', 'n', 'c', 'e'}));
  EXPECT_LE(json["tokens"].size(), 20u);
  EXPECT_GT(json["tokens_per_s"].get<double>(), 0);
}

TEST_F(GenerateCommand, TakesTheSameFromTheRunItsCheckpointsAndTheCheckpointItself) {
  const std::string rest = " --prompt abc --max-tokens 15 --seed 4";
  const auto tokens = json_of(text_run() + rest)["tokens"];
  EXPECT_EQ(json_of(text_run() + "/checkpoints" + rest)["tokens"], tokens);
  EXPECT_EQ(json_of(text_run() + "/checkpoints/step-00000003" + rest)["tokens"], tokens);
}

TEST_F(GenerateCommand, GivesTheSameTextForTheSameSeedOnAnyNumberOfThreads) {
  const std::string rest = text_run() + " --prompt abc --max-tokens 30 --temperature 1";
  const auto tokens = json_of(rest + " --seed 4 --threads 1")["tokens"];
  EXPECT_EQ(json_of(rest + " --seed 4 --threads 3")["tokens"], tokens);
  EXPECT_NE(json_of(rest + " --seed 5")["tokens"], tokens);
}

TEST_F(GenerateCommand, GivesTheSameTextOnRanksThatCutTheModel) {
  const std::string rest = kGolden + "llama-tiny --tokens '1 5 9' --max-tokens 20 --precision fp64 --seed 4";
  const auto tokens = json_of(rest)["tokens"];
  EXPECT_EQ(tokens.size(), 20u);
  EXPECT_EQ(json_of(rest + " --tp 2")["tokens"], tokens);
  EXPECT_EQ(json_of(rest + " --tp 4 --threads 1")["tokens"], tokens);
  const Outcome plain = run_in_shell("generate " + rest), cut = run_in_shell("generate --tp 2 " + rest);
  EXPECT_EQ(cut.code, 0);
  EXPECT_EQ(cut.out, plain.out);
  const std::string trained = text_run() + " --prompt abc --max-tokens 30 --precision fp64";
  EXPECT_EQ(json_of(trained + " --tp 2")["text"], json_of(trained)["text"]);
}

TEST_F(GenerateCommand, GivesTheSameTextOnStages) {
  for (const std::string& rest :
       {kGolden + "llama-tiny --tokens '1 5 9' --max-tokens 20 --seed 4",
        kGolden + "gpt2-tiny --tokens '1 5 9' --max-tokens 20 --precision bf16", text_run() + " --prompt abc"}) {
    const Outcome one = run_in_shell("generate " + rest + " 2>/dev/null");
    EXPECT_EQ(one.code, 0) << one.out;
    for (const char* stages : {" --pp 2", " --pp 4 --threads 1"}) {
      const Outcome cut = run_in_shell("generate " + rest + stages + " 2>/dev/null");
      EXPECT_EQ(cut.code, 0) << cut.out;
      EXPECT_EQ(cut.out, one.out) << rest << stages;
    }
  }
  // Ranks that cut layers add up in another order.
  const std::string rest = text_run() + " --prompt abc --max-tokens 30 --precision fp64";
  EXPECT_EQ(json_of(rest + " --pp 2 --tp 2")["text"], json_of(rest)["text"]);
}

TEST_F(GenerateCommand, GivesTheSameTextOnRanksThatCutTheCache) {
  const std::string longer = folder_ + "/longer";  // than a chunk of a prompt, which is 64 tokens
  const Outcome trained = run_in_shell(
      "train " + std::string(LOCKSTEP_SOURCE_DIR) +
      "/configs/runs/synthetic.toml --set model.max_positions=200 --set data.seq=32 --set train.steps=1 --set "
      "train.global_batch=2 --set train.eval_every=0 --set optim.schedule=constant --set optim.warmup=0 --out " +
      longer);
  ASSERT_EQ(trained.code, 0) << trained.out;
  std::string ids;
  for (int i = 0; i < 140; ++i) ids += std::to_string(i * 7 % 16) + " ";
  for (const std::string& rest : {kGolden + "llama-tiny --tokens '1 5 9' --max-tokens 20 --precision fp64 --seed 4",
                                  text_run() + " --prompt abc --max-tokens 30 --precision fp64",
                                  longer + " --tokens '" + ids + "' --max-tokens 20 --precision fp64"}) {
    const Outcome one = run_in_shell("generate " + rest);
    EXPECT_EQ(one.code, 0) << one.out;
    for (const char* cut : {" --cp 2", " --cp 3 --threads 1", " --pp 2 --cp 2 --tp 2 --threads 1"}) {
      const Outcome got = run_in_shell("generate " + rest + cut);
      EXPECT_EQ(got.code, 0) << got.out;
      EXPECT_EQ(got.out, one.out) << rest << cut;
    }
  }
}

TEST_F(GenerateCommand, EverySamplingOptionActs) {
  const std::string rest = text_run() + " --prompt abc --max-tokens 30";
  const auto greedy = json_of(rest + " --temperature 0")["tokens"];
  EXPECT_EQ(json_of(rest + " --temperature 9 --top-k 1 --seed 8")["tokens"], greedy);
  EXPECT_EQ(json_of(rest + " --temperature 9 --top-p 0.00001 --seed 8")["tokens"], greedy);
  EXPECT_NE(json_of(rest + " --temperature 9 --seed 8")["tokens"], greedy);
  // Synthetic text has no end that it could come to.
  EXPECT_EQ(json_of(id_run() + " --tokens '1 2' --max-tokens 30 --precision fp64")["tokens"].size(), 30u);
}

TEST_F(GenerateCommand, MinPAndRepetitionPenaltyAct) {
  const std::string rest = text_run() + " --prompt abc --max-tokens 30";
  EXPECT_EQ(json_of(rest + " --temperature 9 --min-p 1 --seed 8")["tokens"],
            json_of(rest + " --temperature 0")["tokens"]);
  // Every token that was there becomes far less likely than any that was not.
  const auto json = json_of(rest + " --temperature 0 --repetition-penalty 1e9");
  std::set<int> seen{'a', 'b', 'c'};
  for (const auto& id : json["tokens"]) EXPECT_TRUE(seen.insert(id.get<int>()).second) << id;
}

TEST_F(GenerateCommand, EndsAtAStopText) {
  const std::string rest = text_run() + " --prompt abc --max-tokens 30 --temperature 1";
  const auto whole = json_of(rest);
  EXPECT_EQ(whole["finish"], "length");
  const std::string text = whole["text"], stop = text.substr(11, 2);
  ASSERT_NE(text.find(stop), text.npos);
  std::ofstream(folder_ + "/stop") << stop;
  const auto ended = json_of(rest + " --stop never --stop \"$(cat " + folder_ +
                             "/stop; echo x)\" --stop \"$(printf %s \"" + "$(cat " + folder_ + "/stop)\")\"");
  EXPECT_EQ(ended["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(ended["finish"], "stop");
}

// A folder of a model of bytes with a chat template.
std::string chat_folder(const std::string& run, const std::string& folder) {
  if (std::filesystem::exists(folder)) return folder;
  EXPECT_EQ(run_in_shell("export " + run + " --out " + folder).code, 0);
  std::ofstream(folder + "/chat_template.jinja") << "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}\n{% "
                                                    "endfor %}{% if add_generation_prompt %}<a>{% endif %}";
  return folder;
}

std::string text_of_ids(const nlohmann::json& ids) {
  std::string text;
  for (const auto& id : ids) text += static_cast<char>(id.get<int>());
  return text;
}

TEST_F(GenerateCommand, AnswersAsTheChatTemplateSays) {
  const std::string chat = chat_folder(text_run(), folder_ + "/chat");
  const auto one = json_of(chat + " --chat --system 'Be.' --prompt 'Hi' --max-tokens 5");
  EXPECT_EQ(text_of_ids(one["prompt_tokens"]), "<s>Be.\n<u>Hi\n<a>");
  std::ofstream(folder_ + "/talk.json")
      << R"({"messages": [{"role": "system", "content": "Be."}, {"role": "user", "content": "Hi"}]})";
  EXPECT_EQ(json_of(chat + " --messages " + folder_ + "/talk.json --max-tokens 5")["tokens"], one["tokens"]);
}

TEST_F(GenerateCommand, AConversationHasAllThatWasSaidBefore) {
  const std::string chat = chat_folder(text_run(), folder_ + "/chat");
  for (const char* ranks : {"", " --tp 2", " --pp 2 --cp 2 --threads 1"}) {
    const std::string rest = std::string(" --max-tokens 4 --precision fp64 --json") + ranks;
    const Outcome o = run_in_shell("generate " + chat + " --chat" + rest + " <<'END'\nHi\n\nYou?\nEND");
    ASSERT_EQ(o.code, 0) << o.out;
    std::istringstream lines(o.out);
    std::string first, second, more;
    std::getline(lines, first);
    std::getline(lines, second);
    EXPECT_FALSE(std::getline(lines, more)) << more;
    const auto a = nlohmann::json::parse(first), b = nlohmann::json::parse(second);
    EXPECT_EQ(text_of_ids(a["prompt_tokens"]), "<u>Hi\n<a>");
    const std::string said = a["text"];
    if (std::all_of(said.begin(), said.end(), [](unsigned char c) { return c < 0x80; })) {
      EXPECT_EQ(text_of_ids(b["prompt_tokens"]), "<u>Hi\n<a>" + said + "\n<u>You?\n<a>");
    }
    // What the model has kept of the conversation is what it would read anew.
    const nlohmann::json whole{{{"role", "user"}, {"content", "Hi"}},
                               {{"role", "assistant"}, {"content", said}},
                               {{"role", "user"}, {"content", "You?"}}};
    std::ofstream(folder_ + "/whole.json") << whole.dump();
    const auto again = json_of(chat + " --messages " + folder_ + "/whole.json --max-tokens 4 --precision fp64" + ranks);
    EXPECT_EQ(again["prompt_tokens"], b["prompt_tokens"]) << ranks;
    EXPECT_EQ(again["tokens"], b["tokens"]) << ranks;
  }
}

TEST_F(GenerateCommand, EndsAtTheTokensOfTheGenerationConfig) {
  const std::string chat = chat_folder(text_run(), folder_ + "/chat-ends");
  const std::string rest = chat + " --prompt abc --max-tokens 9 --temperature 0";
  const auto tokens = json_of(rest)["tokens"];
  ASSERT_EQ(tokens.size(), 9u);
  std::ofstream(chat + "/generation_config.json") << nlohmann::json{{"eos_token_id", {200, tokens[4]}}}.dump();
  const auto ended = json_of(rest);
  EXPECT_EQ(ended["finish"], "end");
  EXPECT_EQ(ended["tokens"], nlohmann::json(std::vector<nlohmann::json>(
                                 tokens.begin(), std::find(tokens.begin(), tokens.end(), tokens[4]))));
}

TEST_F(GenerateCommand, GivesEveryPromptOfAFileTheAnswerThatItHasAlone) {
  const std::string chat = chat_folder(text_run(), folder_ + "/chat"), rest = " --max-tokens 6 --seed 3";
  std::ofstream(folder_ + "/prompts.txt") << "Once\n\nOnce upon\r\nabc";
  std::ofstream(folder_ + "/prompts.jsonl") << R"({"prompt": "Once"}
{"id": 3, "prompt": "Once upon"}
{"messages": [{"role": "user", "content": "Hi"}]}
)";
  for (const char* file : {"/prompts.txt", "/prompts.jsonl"}) {
    const Outcome o = run_in_shell("generate " + chat + " --prompts " + folder_ + file + rest);
    ASSERT_EQ(o.code, 0) << o.out;
    std::istringstream lines(o.out);
    const std::string last = std::string(file).ends_with("txt") ? " --prompt abc" : " --chat --prompt Hi";
    for (const std::string& prompt : {std::string(" --prompt Once"), std::string(" --prompt 'Once upon'"), last}) {
      std::string line;
      ASSERT_TRUE(std::getline(lines, line));
      const auto alone = json_of(chat + prompt + rest), got = nlohmann::json::parse(line);
      EXPECT_EQ(got["prompt_tokens"], alone["prompt_tokens"]);
      EXPECT_EQ(got["tokens"], alone["tokens"]) << prompt;
    }
  }
}

TEST_F(GenerateCommand, AnswersPromptsTogetherAsOneAfterTheOtherAndInTheirOrder) {
  std::ofstream prompts(folder_ + "/many.txt");
  for (int i = 0; i < 9; ++i)
    prompts << std::string(static_cast<std::size_t>(1 + 13 * i % 47), static_cast<char>('a' + i)) << '\n';
  prompts.close();
  const auto answers = [&](const std::string& how) {
    const Outcome o = run_in_shell("generate " + text_run() + " --prompts " + folder_ +
                                   "/many.txt --max-tokens 12 --seed 3" + how + " 2>/dev/null");
    EXPECT_EQ(o.code, 0) << o.out;
    std::istringstream lines(o.out);
    nlohmann::json all = nlohmann::json::array();
    for (std::string line; std::getline(lines, line);) {
      all.push_back(nlohmann::json::parse(line));
      all.back().erase("tokens_per_s");
    }
    return all;
  };
  const nlohmann::json one_by_one = answers(" --batch 1");
  ASSERT_EQ(one_by_one.size(), 9u);
  std::set<std::size_t> lengths;
  for (const auto& answer : one_by_one) lengths.insert(answer["tokens"].size());
  EXPECT_GT(lengths.size(), 1u) << "they end together, so no place is taken by the next";
  for (const char* how : {"", " --batch 2", " --batch 4 --threads 2", " --batch 9", " --batch 1000",
                          " --batch 3 --pp 2", " --batch 4 --cp 2"})
    EXPECT_EQ(answers(how), one_by_one) << how;
}

TEST_F(GenerateCommand, AnEmptyPromptBeginsADocument) {
  EXPECT_EQ(json_of(text_run() + " --max-tokens 3")["prompt_tokens"], nlohmann::json({256}));
  EXPECT_EQ(json_of(text_run() + " --prompt '' --max-tokens 3")["prompt_tokens"], nlohmann::json({256}));
}

// The model is hardly trained, so among many texts some end early; the token that ends them is never given.
TEST_F(GenerateCommand, StopsAtTheEndOfADocument) {
  bool any = false;
  for (int seed = 0; seed < 40 && !any; ++seed) {
    const auto json = json_of(text_run() + " --temperature 1 --max-tokens 45 --seed " + std::to_string(seed));
    for (const auto& id : json["tokens"]) EXPECT_LT(id.get<int>(), 256);
    any = json["tokens"].size() < 45;
  }
  EXPECT_TRUE(any);
}

TEST_F(GenerateCommand, SaysWhenThePositionsAreUsedUp) {
  const Outcome o = run_in_shell("generate " + text_run() + " --tokens '1 2 3' --temperature 0 2>&1 >/dev/null");
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.out, "lockstep: the model's 48 positions are used up after 46 tokens\n");
  EXPECT_EQ(json_of(text_run() + " --tokens '1 2 3' --temperature 0 2>/dev/null")["tokens"].size(), 46u);
  const std::string full(kPositions, 'x');
  EXPECT_EQ(json_of(text_run() + " --max-tokens 1 --prompt " + full)["tokens"].size(), 1u);
}

TEST_F(GenerateCommand, TakesAndGivesIdsWhereTokensAreNoBytes) {
  for (const std::string& folder : {id_run(), kGolden + "llama-tiny"}) {
    const Outcome o = run_in_shell("generate " + folder + " --tokens '1, 5 9' --max-tokens 4");
    EXPECT_EQ(o.code, 0) << o.out;
    EXPECT_THAT(o.out, ::testing::MatchesRegex("[0-9]+ [0-9]+ [0-9]+ [0-9]+\n"));
    const auto json = json_of(folder + " --tokens '1 5 9' --max-tokens 4");
    EXPECT_EQ(json["prompt_tokens"], nlohmann::json({1, 5, 9}));
    EXPECT_TRUE(json["text"].is_null());
  }
}

TEST_F(GenerateCommand, EndsCleanlyWhenTold) {
  // A model whose text has no end and many positions; the signal comes when the first tokens are there. (It is not
  // Ctrl-C's, which a shell has what it starts in the background ignore.)
  const std::string many = folder_ + "/many", out = folder_ + "/out";
  const Outcome trained =
      run_in_shell("train " + std::string(LOCKSTEP_SOURCE_DIR) +
                   "/configs/runs/synthetic.toml --set model.max_positions=40000 --set data.seq=32 --set "
                   "train.steps=1 --set train.global_batch=2 --set train.eval_every=0 --set "
                   "optim.schedule=constant --set optim.warmup=0 --out " +
                   many);
  ASSERT_EQ(trained.code, 0) << trained.out;
  const std::string exported = folder_ + "/many-hf";
  ASSERT_EQ(run_in_shell("export " + many + " --out " + exported).code, 0);
  for (const std::string& which : {many, exported + " --tp 2", many + " --pp 2", many + " --cp 2"}) {
    std::filesystem::remove(out);
    const Outcome o = run_in_shell(
        "generate " + which + " --tokens 1 --max-tokens 40000 >" + out + " & for i in $(seq 600); do [ -s " + out +
        " ] && break; sleep 0.05; done; kill -TERM $!; " + "wait $!; echo $?; tail -c 1 " + out + " | od -An -c");
    EXPECT_EQ(o.out, "0\n  \\n\n");                       // the last line is whole
    EXPECT_LT(std::filesystem::file_size(out), 60'000u);  // and 40,000 tokens are at least 80,000 bytes
  }
}

TEST_F(GenerateCommand, ACharacterLeftUnfinishedAtTheEndIsShownAsSuch) {
  bool any = false;
  for (int seed = 0; seed < 60 && !any; ++seed) {
    const auto json = json_of(text_run() + " --temperature 99 --max-tokens 1 --seed " + std::to_string(seed));
    if (json["tokens"].empty()) continue;
    const int id = json["tokens"][0];
    any = id >= 0xC2 && id <= 0xF4;  // a byte that begins a character of several
    if (any) {
      EXPECT_EQ(json["text"], "\xEF\xBF\xBD");
    }
  }
  EXPECT_TRUE(any);
}

TEST_F(GenerateCommand, SaysWhenItsAnswerCouldNotBeWritten) {
  for (const std::string& rest :
       {text_run() + " --prompt abc", kGolden + "llama-tiny --tokens 1 --max-tokens 20 --tp 2"}) {
    const Outcome o = run_in_shell("generate " + rest + " 3>&1 >/dev/full 2>&3 3>&-");
    EXPECT_EQ(o.code, 5);
    EXPECT_THAT(o.out, HasSubstr("standard output"));
  }
}

TEST_F(GenerateCommand, EveryMistakeGetsOneLineAndItsExitCode) {
  struct Mistake {
    std::string arguments;
    int code;
    std::string says;
  };
  const std::string empty = folder_ + "/empty";
  std::filesystem::create_directories(empty);
  const std::string text = text_run(), ids = id_run(), wrong_talk = chat_folder(text, folder_ + "/chat");
  std::ofstream(folder_ + "/wrong.json") << "{}";
  std::ofstream(folder_ + "/wrong.jsonl") << "{\"prompt\": \"x\"}\n{}\n";
  std::ofstream(folder_ + "/line") << "Hello\n";
  for (const Mistake& m : std::vector<Mistake>{
           {"", 2, "folder"},
           {"/nowhere/at/all", 6, "there is no folder '/nowhere/at/all'; name a run folder"},
           {empty, 6, "holds no whole checkpoint; name a run folder"},
           {text + " --tokens '1 257'", 2, "no token id 257; use ids from 0 to 256"},
           {text + " --tokens '1 x'", 2, "'x' is not a token id"},
           {text + " --tokens '1 99999999999'", 2, "'99999999999' is not a token id"},
           {text + " --tokens 1 --prompt x", 2, "--prompt"},
           {text + " --temperature -1", 2, "a temperature of -1; use a number from 0 (greedy) on"},
           {text + " --top-p 0", 2, "a top-p of 0; use a number above 0 and at most 1"},
           {text + " --top-k -3", 2, "a top-k of -3"},
           {text + " --max-tokens 0", 2, "--max-tokens"},
           {text + " --threads 0", 2, "--threads"},
           {text + " --tp 0", 2, "--tp"},
           {text + " --tp 3", 2,
            "4 heads with 2 key/value heads cannot be shared out to tp (3) ranks; use --tp 1, 2, 4"},
           {text + " --pp 0", 2, "--pp"},
           {text + " --pp 5", 2,
            "2 layers, the embedding and the head cannot be split into pp (5) stages; use --pp 4 or less"},
           {text + " --pp 2 --tp 3", 2, "cannot be shared out to tp (3) ranks"},
           {text + " --cp 0", 2, "--cp"},
           {text + " --cp 49", 2, "a cache of 48 positions cannot be split over cp (49) ranks; use --cp 48 or less"},
           {text + " --cp 2 --tp 3", 2, "cannot be shared out to tp (3) ranks"},
           {text + " --precision fp13", 2, "fp13"},
           {text + " --prompt " + std::string(kPositions + 1, 'x'), 2, "the prompt has 49 tokens and the model 48"},
           {ids + " --prompt abc", 2,
            "are not bytes of text, and it has no tokenizer.json; give the prompt as ids, such as --tokens"},
           {ids, 2, "are not bytes of text, and it has no tokenizer.json; give the prompt as ids"},
           {ids + " --tokens ''", 2, "--tokens holds no token id"},
           {kGolden + "llama-tiny --prompt abc", 2, "are not bytes of text"},
           {text + " --min-p 2", 2, "a min-p of 2; use a number from 0"},
           {text + " --repetition-penalty 0", 2, "a repetition penalty of 0; use 1 (none)"},
           {text + " --stop ''", 2, "--stop is empty; give it a value"},
           {text + " --tokens 1 --stop x", 2, "--tokens excludes --stop"},
           {text + " --chat --prompt x", 4, "has no chat template; put a chat_template.jinja"},
           {text + " --system x", 2, "--system requires --chat"},
           {text + " --context 9", 2, "--context requires --chat"},
           {text + " --chat --tokens 1", 2, "--tokens excludes --chat"},
           {text + " --messages " + empty + "/no", 4, "no"},
           {text + " --prompts " + empty + "/no", 4, "no"},
           {text + " --prompts /dev/null", 4, "'/dev/null'"},
           {wrong_talk + " --messages " + folder_ + "/wrong.json", 4, "holds no list of messages; write [{"},
           {wrong_talk + " --prompts " + folder_ + "/wrong.jsonl", 4, "line 2 is no object with"},
           {wrong_talk + " --chat --context 3 < " + folder_ + "/line", 2,
            "there is room for 3; begin a new one, or use"},
           {wrong_talk + " --chat --prompt " + std::string(kPositions, 'x'), 2, "the model 48 positions"}}) {
    const Outcome o = run_in_shell("generate " + m.arguments);
    EXPECT_EQ(o.code, m.code) << m.arguments << "\n" << o.out;
    EXPECT_THAT(o.out, HasSubstr(m.says));
    EXPECT_THAT(o.out, ::testing::StartsWith("lockstep: "));
    EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 1) << o.out;
  }
}

TEST_F(GenerateCommand, PassesOverADamagedCheckpointWithAWord) {
  const std::string copy = folder_ + "/damaged";
  std::filesystem::copy(text_run(), copy, std::filesystem::copy_options::recursive);
  const std::string newer = copy + "/checkpoints/step-00000009";
  std::filesystem::copy(copy + "/checkpoints/step-00000003", newer);
  std::filesystem::resize_file(newer + "/manifest.json", 10);
  std::filesystem::remove(copy + "/checkpoints/latest");
  const Outcome o = run_in_shell("generate " + copy + " --prompt abc --max-tokens 2");
  EXPECT_EQ(o.code, 0) << o.out;
  EXPECT_THAT(o.out, HasSubstr("skipping " + newer));
}

}  // namespace
}  // namespace lockstep::tests
