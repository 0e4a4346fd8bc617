// Corpora, mixtures and token files of other programs as a user meets them: written, killed and continued, trained on
// in several layouts, resumed and looked into.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "data/compressed_bytes.h"
#include "data/foreign_bytes.h"
#include "data/token_file.h"
#include "support/program.h"
#include "support/run_results.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tests::losses_in;
using tests::Outcome;
using tests::Program;
using tests::run_in_shell;
using tests::run_program;
using tests::TemporaryFolder;
using tests::text_of;
namespace fs = std::filesystem;

std::string json_documents(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += fmt::format("{{\"id\":{},\"text\":\"document {} says: {}\"}}\n", i, i, std::string(i % 97 * 7, 'x'));
  return lines;
}

void write_file(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST(TokenizeCommand, StandardInputFilesAndAnyCompressionGiveTheSameFile) {
  const TemporaryFolder folder;
  const std::string lines = json_documents(2000);
  write_file(folder / "a.jsonl", lines);
  write_file(folder / "b.jsonl.gz", gzip_member(lines));
  write_file(folder / "c.jsonl.zst", zstd_frame(lines));
  for (const char* name : {"a.jsonl", "b.jsonl.gz", "c.jsonl.zst"}) {
    const std::string out = folder / (std::string(name) + ".tokens"), in = folder / (std::string(name) + ".stdin");
    const Outcome file = run_program({"tokenize", folder / name, "--key", "text", "--out", out, "--threads", "3"});
    ASSERT_EQ(file.code, 0) << file.err;
    EXPECT_THAT(file.out, HasSubstr("2,000 documents, vocabulary 257"));
    const Outcome piped = run_in_shell("tokenize - --key text --out " + in + " < " + (folder / name));
    ASSERT_EQ(piped.code, 0) << piped.out;
    EXPECT_EQ(text_of(out) == text_of(folder / "a.jsonl.tokens"), true) << name;
    EXPECT_EQ(text_of(in) == text_of(folder / "a.jsonl.tokens"), true) << name;
  }
}

TEST(TokenizeCommand, AKilledOneContinuesWithTheSameFile) {
  const TemporaryFolder folder;
  write_file(folder / "a.jsonl.zst", zstd_frame(json_documents(100'000)));
  const auto command = [&](const std::string& out) {
    return std::vector<std::string>{
        "tokenize", folder / "a.jsonl.zst", "--key", "text", "--out", folder / out, "--threads",
        "1",        "--save-every",         "0"};
  };
  const Outcome whole = run_program(command("whole.tokens"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  int killed = 0;
  for (int round = 0; round < 20 && !fs::exists(folder / "killed.tokens"); ++round) {
    Program program(command("killed.tokens"));
    const auto changed = [&] {
      std::error_code none;
      return fs::last_write_time(folder / "killed.tokens.progress", none).time_since_epoch().count();
    };
    const auto before = changed();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!program.has_ended() && (changed() == before) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    program.signal(round % 2 == 0 ? SIGKILL : SIGINT);
    const Outcome ended = program.wait();
    if (round % 2 == 1 && ended.code == 130) {
      EXPECT_THAT(ended.err, HasSubstr("the same command continues"));
    }
    killed += ended.code != 0;
  }
  EXPECT_GT(killed, 0);
  const Outcome last = run_program(command("killed.tokens"));
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(text_of(folder / "killed.tokens") == text_of(folder / "whole.tokens"), true);
  EXPECT_FALSE(fs::exists(folder / "killed.tokens.progress"));
  EXPECT_FALSE(fs::exists(folder / "killed.tokens.partial"));
  EXPECT_FALSE(fs::exists(folder / "killed.tokens.partial-index"));
}

TEST(TokenizeCommand, ABombTakesNoMemory) {
  const TemporaryFolder folder;
  write_file(folder / "bomb.jsonl.zst", zstd_frame("{\"text\":\"a\"}\n") + zstd_bomb('a', 100'000));  // 12 GiB
  const Outcome bomb =
      run_program({"tokenize", folder / "bomb.jsonl.zst", "--key", "text", "--longest", "16", "--out", folder / "x"});
  EXPECT_EQ(bomb.code, 4);
  EXPECT_THAT(bomb.err, HasSubstr("bomb.jsonl.zst:2: the line is longer than 16 MiB; split it, or give --longest"));
  EXPECT_LT(bomb.resident_bytes, std::int64_t{200} << 20);
  EXPECT_FALSE(fs::exists(folder / "x"));
}

class MixedRun : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b", "c"}) {
      write_file(folder_ / (std::string(name) + ".txt"), json_documents(name[0] == 'a' ? 40 : 25) + name);
      const Outcome o = run_program(
          {"tokenize", folder_ / (std::string(name) + ".txt"), "--out", folder_ / (std::string(name) + ".tokens")});
      ASSERT_EQ(o.code, 0) << o.err;
    }
    // The third is Megatron-LM's.
    const TokenFile file(folder_ / "c.tokens");
    std::vector<std::int32_t> ids(static_cast<std::size_t>(file.tokens()));
    file.read(0, ids);
    const MegatronText text{.lengths = {static_cast<std::int32_t>(ids.size())}, .pointers = {}, .documents = {0, 1}};
    write_file(folder_ / "c.idx", text.idx());
    write_file(folder_ / "c.bin", ids_of<std::uint16_t>({ids.begin(), ids.end()}));
    write_file(folder_ / "run.toml", R"([model]
family = "llama"
vocabulary = 257
layers = 2
width = 32
heads = 4
kv_heads = 2
ffn_width = 64
max_positions = 64
[data]
seq = 16
[data.source.a]
text = "a.txt"
weight = 0.5
[data.source.b]
tokens = "b.tokens"
weight = "0.2, 0.4@16"
eval_share = 0.1
[data.source.c]
tokens = "c.bin"
weight = 0.3
epochs = 0.05
[train]
steps = 8
global_batch = 8
eval_every = 4
eval_batches = 2
save_every = 3
[optim]
warmup = 0
schedule = "constant"
[precision]
compute = "fp64"
[run]
threads = 1
)");
  }
  std::vector<double> losses_of(const std::string& out, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"train", folder_ / "run.toml", "--out", folder_ / out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome o = run_program(arguments);
    EXPECT_EQ(o.code, 0) << o.err;
    return losses_in(folder_ / out);
  }
  static void expect_near(const std::vector<double>& some, const std::vector<double>& other, const std::string& what) {
    ASSERT_EQ(some.size(), other.size()) << what;
    for (std::size_t i = 0; i < some.size(); ++i) EXPECT_NEAR(some[i], other[i], 1e-11 * std::fabs(other[i])) << what;
  }
  TemporaryFolder folder_;
};

TEST_F(MixedRun, LearnsTheSameInEveryLayoutAndAfterAResumeInAnother) {
  const std::vector<double> one = losses_of("one");
  ASSERT_EQ(one.size(), 10u);
  for (const char* layout : {"dp=2", "dp=4,zero=3,micro=2", "pp=2,micro=4", "tp=2", "cp=2", "dp=2,pp=2,micro=2"})
    expect_near(losses_of(layout, {"--layout", layout}), one, layout);
  losses_of("resumed", {"--layout", "pp=2,micro=2", "--set", "train.steps=4"});
  expect_near(losses_of("resumed", {"--layout", "dp=4", "--resume"}), one, "resumed");
}

TEST_F(MixedRun, ConfinesAttentionToTheDocumentsOfEverySource) {
  // Documents of 20 bytes and more, in samples of 16: one begins in most of them.
  fs::create_directories(folder_ / "pages");
  const std::string text = text_of(folder_ / "a.txt");
  for (std::size_t i = 0, at = 0; at < text.size(); at += 20 + i % 7, ++i)
    write_file(folder_ / fmt::format("pages/{:04}.txt", i), text.substr(at, 20 + i % 7));
  const std::vector<std::string> pages{"--set", "data.source.a.text=" + (folder_ / "pages")},
      masked{"--set", "data.documents=masked"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), pages.begin(), pages.end());
    more.insert(more.begin(), masked.begin(), masked.end());
    return more;
  };
  const std::vector<double> one = losses_of("masked", with({}));
  ASSERT_EQ(one.size(), 10u);
  EXPECT_NE(one, losses_of("stream", pages));
  for (const char* layout : {"dp=2,micro=2", "cp=2", "pp=2,tp=2,micro=2"})
    expect_near(losses_of(fmt::format("masked-{}", layout), with({"--layout", layout})), one, layout);
  const Outcome sample = run_program({"data", "inspect", folder_ / "run.toml", "--set", masked[1], "--sample", "5"});
  ASSERT_EQ(sample.code, 0) << sample.err;
  EXPECT_THAT(sample.out, HasSubstr("sample       5: "));
}

TEST_F(MixedRun, AnotherMixtureIsNotResumed) {
  losses_of("run", {"--set", "train.steps=3"});
  const auto said = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"train", folder_ / "run.toml", "--out", folder_ / "run", "--resume"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome o = run_program(arguments);
    return fmt::format("{} {}", o.code, o.err);
  };
  EXPECT_THAT(said({"--set", "data.source.a.weight=0.6"}),
              AllOf(HasSubstr("2 "), HasSubstr("data.source.a.weight was")));
  EXPECT_THAT(said({"--set", "data.source.c.epochs=0"}), HasSubstr("data.source.c.epochs was 0.05"));
  EXPECT_THAT(said({"--set", "data.weigh_by=documents"}), HasSubstr("data.weigh_by was \"tokens\""));
  fs::copy(folder_ / "b.tokens", folder_ / "moved.tokens");
  EXPECT_THAT(said({"--set", "data.source.b.tokens=" + (folder_ / "moved.tokens")}), testing::StartsWith("0 "))
      << "the same tokens at another place are the same";
  EXPECT_THAT(said({"--set", "data.source.b.tokens=" + (folder_ / "c.tokens"), "--set", "train.steps=9"}),
              HasSubstr("the data is not the data it was trained on"));
}

TEST_F(MixedRun, IsShownByPlanAndByInspect) {
  const Outcome plan = run_program({"plan", folder_ / "run.toml"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("source"), HasSubstr("a: "), HasSubstr("epochs of")));
  const Outcome shown = run_program({"data", "inspect", folder_ / "run.toml"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("8 steps of 8 samples of 16 tokens"), HasSubstr("c: "), HasSubstr("% of the samples")));
  const Outcome sample = run_program({"data", "inspect", folder_ / "run.toml", "--sample", "5"});
  ASSERT_EQ(sample.code, 0) << sample.err;
  EXPECT_THAT(sample.out, HasSubstr("sample       5: 16 tokens"));
}

TEST_F(MixedRun, IsEvaluatedAlikeByTextByJsonLinesAndByTokens) {
  losses_of("run", {"--set", "train.steps=2", "--set", "data.text=" + (folder_ / "a.txt")});
  write_file(folder_ / "b.jsonl", "{\"text\":" + nlohmann::json(text_of(folder_ / "b.txt")).dump() + "}\n");
  const auto eval = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"eval", folder_ / "run", "--json", "--precision", "fp64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome o = run_program(arguments);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? nlohmann::json::parse(o.out) : nlohmann::json();
  };
  const nlohmann::json text = eval({folder_ / "b.txt"});
  EXPECT_EQ(text.at("documents"), 1);
  EXPECT_EQ(text.at("tokens"), TokenFile(folder_ / "b.tokens").tokens()) << "the end is predicted too";
  EXPECT_NEAR(text.at("perplexity").get<double>(), std::exp(text.at("loss").get<double>()), 1e-9);
  EXPECT_EQ(eval({folder_ / "b.tokens", "--tokens"}).at("nats"), text.at("nats"));
  EXPECT_EQ(eval({folder_ / "b.jsonl", "--key", "text"}).at("nats"), text.at("nats"));
  // Two steps have taught it something, and more before a token helps or does no harm to speak of.
  EXPECT_LT(text.at("perplexity"), 257);
  EXPECT_NE(eval({folder_ / "b.txt", "--stride", "1"}).at("nats"), text.at("nats"));
  write_file(folder_ / "q.jsonl", R"({"context":"document 1","choices":[" says: x","  qqqqqqqq"],"answer":0}
{"context":"document 1","choices":["\u0001\u0002\u0003\u0004\u0005\u0006","says"],"answer":0}
)");
  const nlohmann::json choices = eval({folder_ / "q.jsonl", "--choices"});
  EXPECT_EQ(choices.at("questions"), 2);
  EXPECT_EQ(choices.at("acc"), 0.5) << "what the text never has is not the likelier";
}

TEST(DataInspect, CountsWhatATokenFileHolds) {
  const TemporaryFolder folder;
  std::string lines;
  for (const char* text : {"abc", "abc", "a longer text of more words", "x", "abc"})
    lines += fmt::format("{{\"text\":\"{}\"}}\n", text);
  write_file(folder / "in.jsonl", lines);
  ASSERT_EQ(run_program({"tokenize", folder / "in.jsonl", "--key", "text", "--out", folder / "t"}).code, 0);
  const Outcome shown = run_program({"data", "inspect", folder / "t"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  // 4 + 4 + 28 + 2 + 4 tokens, the ends included.
  EXPECT_THAT(shown.out, AllOf(HasSubstr("a token file: 42 tokens, ids below 257"),
                               HasSubstr("5, of 2 to 28 tokens, 8.4 on average"),
                               HasSubstr("2 documents equal an earlier one: 19.05 % of the tokens")));
  EXPECT_THAT(shown.out, HasSubstr("           5  11.90 %  256 (end of a document)"));
  EXPECT_THAT(shown.out, testing::ContainsRegex("4 to 7 +3 "));
  const Outcome sample = run_program({"data", "inspect", folder / "t", "--sample", "1", "--seq", "6"});
  EXPECT_EQ(sample.out.substr(sample.out.find("sample")),
            "sample       1: 6 tokens\nc\n──────── a document begins at token 2 of the sample ────────\na lo\n");
}

TEST(DataInspect, SaysWhatATokenizerDoesNotKnow) {
  const TemporaryFolder folder;
  const std::string llama = LOCKSTEP_SOURCE_DIR "/tests/golden/tokenizers/llama2";
  write_file(folder / "in.txt", "known words \xe2\x8c\x98\xf0\x9f\xa6\xa9 and \xff");
  const Outcome made = run_program({"tokenize", folder / "in.txt", "--tokenizer", llama, "--out", folder / "t"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("in.txt: byte 24 is not UTF-8; such bytes become U+FFFD"));
  const Outcome shown = run_program({"data", "inspect", folder / "t", "--tokenizer", llama});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, testing::ContainsRegex("unknown +0 unknown tokens, [1-9][0-9]* bytes by themselves, 0 ids"));
}

TEST(DataInspect, ReadsFilesOfOtherPrograms) {
  const TemporaryFolder folder;
  write_file(folder / "n.bin", ids_of<std::uint16_t>({1, 2, 3, 70, 2, 2}));
  const Outcome raw = run_program({"data", "inspect", folder / "n.bin", "--token-type", "u16"});
  ASSERT_EQ(raw.code, 0) << raw.err;
  EXPECT_THAT(raw.out,
              AllOf(HasSubstr("ids of 16 bits: 6 tokens"), HasSubstr("4 different ones"), HasSubstr("not known")));
  EXPECT_EQ(run_program({"data", "inspect", folder / "n.bin"}).code, 4);
  const Outcome sample =
      run_program({"data", "inspect", folder / "n.bin", "--token-type", "u16", "--sample", "1", "--seq", "2"});
  EXPECT_THAT(sample.out, HasSubstr("\n3 70\n"));
}

}  // namespace
}  // namespace lockstep
