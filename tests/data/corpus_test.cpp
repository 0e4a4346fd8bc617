// A corpus as a token file: the same file whatever the threads, the compression and the interruptions; what is hostile
// is refused by file and line.
#include "data/corpus/corpus_encoder.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <random>

#include "data/byte_tokenizer.h"
#include "data/compressed_bytes.h"
#include "data/corpus/corpus_state.h"
#include "data/temp_folder.h"
#include "data/token_file.h"
#include "data/token_file_writer.h"
#include "data/tokenized_text.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/utf8.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class Corpus : public TempFolder {
 protected:
  CorpusJob job(std::vector<std::string> paths, std::string key = "", int threads = 2) const {
    return {.paths = std::move(paths),
            .key = std::move(key),
            .out = folder_ / "out.tokens",
            .tokenizer = nullptr,
            .threads = threads};
  }
  std::string refusal(const CorpusJob& job, ExitCode code = ExitCode::bad_input_file) {
    const std::string said = user_error([&] { encode_corpus(job); }, code);
    for (const fs::path& left : {job.out, TokenFileWriter::partial_of(job.out),
                                 TokenFileWriter::partial_index_of(job.out), corpus_state_of(job.out)})
      EXPECT_FALSE(fs::exists(left)) << left;
    return said;
  }
  std::string documents_of_out() const {
    const TokenFile file(folder_ / "out.tokens");
    file.verify();
    std::string text;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(file.tokens()));
    file.read(0, ids);
    for (const std::int32_t id : ids) text += id == kEndOfDocument ? '|' : static_cast<char>(id);
    return text;
  }
};

// Lines of many lengths, some of them empty or without text.
std::vector<std::string> texts(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (std::size_t words = random() % (i % 100 == 0 ? 20'000 : 200); words > 0; --words)
      text += std::string("wörd \"qu\\ote\" 12\n").substr(0, 1 + random() % 17);
    all.push_back(utf8_of_bytes(text));
  }
  return all;
}

std::string json_lines(const std::vector<std::string>& texts) {
  std::string lines;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    lines += nlohmann::json{{"id", i}, {"text", texts[i]}, {"more", {1, 2}}}.dump() + (i % 7 == 0 ? "\r\n" : "\n");
    if (i % 50 == 0) lines += "\n";
  }
  return lines;
}

// The plain model: each document after the other.
std::string plain_file(const fs::path& path, const std::vector<std::string>& texts,
                       const std::shared_ptr<const Tokenizer>& tokenizer) {
  TokenFileWriter writer(path, tokenizer ? tokenizer->vocabulary() : kByteVocabulary);
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    std::vector<std::int32_t> ids = tokenizer ? tokenizer->encode(text, Specials::add) : encode_bytes(text);
    ids.push_back(tokenizer ? 0 : kEndOfDocument);
    writer.add(ids);
  }
  writer.finish();
  return bytes_of(path);
}

std::shared_ptr<const Tokenizer> small_tokenizer(const std::vector<std::string>& texts) {
  WordCounts words;
  for (const std::string& text : texts) words.add(text);
  const std::vector<std::string> specials{"<|endoftext|>"};
  return std::make_shared<const Tokenizer>(
      byte_level_tokenizer_json(learn_merges(words.symbols(), 256, 100, 2), specials), "learned");
}

TEST_F(Corpus, AnyNumberOfThreadsWritesTheFileOfAPlainLoop) {
  const std::vector<std::string> all = texts(3000, 1);
  const std::string lines = json_lines(all);
  ASSERT_GT(lines.size(), std::size_t{4} << 20);
  const std::string input = write("in.jsonl", lines);
  for (const auto& tokenizer : {std::shared_ptr<const Tokenizer>(), small_tokenizer(all)}) {
    const std::string expected = plain_file(folder_ / "plain.tokens", all, tokenizer);
    for (const int threads : {1, 2, 3, 8}) {
      CorpusJob one = job({input}, "text", threads);
      one.tokenizer = tokenizer;
      const CorpusResult result = encode_corpus(one);
      EXPECT_TRUE(result.complete);
      EXPECT_GT(result.empty, 0);
      EXPECT_EQ(bytes_of(one.out) == expected, true) << threads << " threads";
    }
  }
  EXPECT_THAT(files(), testing::UnorderedElementsAre("in.jsonl", "plain.tokens", "out.tokens"));
}

TEST_F(Corpus, IsContinuedAfterAStopWhereverItWas) {
  const std::vector<std::string> first = texts(1500, 2), second = texts(1500, 3);
  write("in/a.jsonl", json_lines(first));
  write("in/b.jsonl.gz", gzip_member(json_lines(second)));
  std::vector<std::string> all = first;
  all.insert(all.end(), second.begin(), second.end());
  const std::string expected = plain_file(folder_ / "plain.tokens", all, nullptr);
  for (int stop_after = 1; stop_after < 6; ++stop_after) {
    int calls = 0, batches = 0;
    CorpusJob one = job({(folder_ / "in").string()}, "text");
    one.proceed = [&](const CorpusProgress&) { return ++batches % stop_after != 0; };
    CorpusResult result;
    for (; !result.complete && calls < 100; ++calls) {
      one.threads = 1 + calls % 3;
      result = encode_corpus(one);
      EXPECT_EQ(fs::exists(corpus_state_of(one.out)), !result.complete);
    }
    EXPECT_GT(calls, 1);
    EXPECT_EQ(result.documents, TokenFile(one.out).documents());
    EXPECT_EQ(bytes_of(one.out) == expected, true) << "stopped after each " << stop_after << " batches";
    EXPECT_THAT(files(), testing::UnorderedElementsAre("in", "plain.tokens", "out.tokens"));
    fs::remove(one.out);
  }
}

TEST_F(Corpus, IsContinuedAfterTheProcessWasKilled) {
  const std::vector<std::string> all = texts(3000, 4);
  const std::string input = write("in.jsonl.zst", zstd_frame(json_lines(all)));
  const std::string expected = plain_file(folder_ / "plain.tokens", all, nullptr);
  CorpusJob one = job({input}, "text");
  one.save_seconds = 0;
  const pid_t child = ::fork();
  if (child == 0) {
    int batches = 0;
    one.proceed = [&](const CorpusProgress&) {
      if (++batches == 4) ::kill(::getpid(), SIGKILL);  // after three were saved, and a fourth was added
      return true;
    };
    encode_corpus(one);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_TRUE(fs::exists(corpus_state_of(one.out)));
  std::int64_t text_bytes = 0;
  one.proceed = [&](const CorpusProgress& p) { return text_bytes = p.text_bytes, true; };
  const CorpusResult result = encode_corpus(one);
  EXPECT_GT(result.continued, 0);
  EXPECT_LT(text_bytes, std::ssize(json_lines(all)) - (std::int64_t{2} << 20)) << "what was done is not done again";
  EXPECT_EQ(bytes_of(one.out) == expected, true);
}

TEST_F(Corpus, OtherInputsAreNoContinuation) {
  const std::string input = write("in.jsonl", json_lines(texts(2000, 5)));
  CorpusJob one = job({input}, "text");
  one.proceed = [](const CorpusProgress&) { return false; };
  ASSERT_FALSE(encode_corpus(one).complete);
  one.proceed = [](const CorpusProgress&) { return true; };
  const auto said = [&](const CorpusJob& changed) { return user_error([&] { encode_corpus(changed); }); };
  CorpusJob other = one;
  other.key = "id";
  EXPECT_THAT(said(other), HasSubstr("out.tokens.progress: is of other inputs"));
  other = one;
  other.tokenizer = small_tokenizer(texts(10, 1));
  EXPECT_THAT(said(other), HasSubstr("another tokenizer"));
  std::ofstream(input, std::ios::app) << "{\"text\":\"more\"}\n";
  EXPECT_THAT(said(one), HasSubstr("or they have changed; give what it began with, or remove it to begin anew"));
  write("out.tokens.progress", "{\"format\":\"lockstep tokenize\",\"version\":1,\"job\":3}");
  EXPECT_THAT(said(one), HasSubstr("is damaged: job is not 16 digits"));
  write("out.tokens.progress", "x");
  EXPECT_THAT(said(one), HasSubstr("is not the progress of `lockstep tokenize`; remove it to begin anew"));
  fs::remove(folder_ / "out.tokens.progress");
  EXPECT_TRUE(encode_corpus(one).complete);
}

TEST_F(Corpus, CompressedTextIsTheText) {
  const std::string text = "one\ntwo " + std::string(300'000, 'x');
  write("a.txt", text);
  write("b.txt.gz",
        gzip_member(text.substr(0, 5)) + gzip_member("") + gzip_member(text.substr(5)) + std::string(512, '\0'));
  write("c.zst", zstd_frame(text.substr(0, 100)) + zstd_frame("") + zstd_frame(text.substr(100)));
  write("d.bin.gz", gzip_member(std::string("a\0b", 3)));
  write("e.gz", "");
  write("f.gz", gzip_member(""));
  encode_corpus(job({folder_.string()}));
  EXPECT_EQ(documents_of_out(), text + "|" + text + "|" + text + "|");
}

TEST_F(Corpus, CompressedDataThatAreCutOrDamagedAreRefused) {
  const std::string text = "{\"text\":\"some words of a line\"}\n";
  for (const auto& [name, whole] : {std::pair<std::string, std::string>("x.jsonl.gz", gzip_member(text)),
                                    std::pair<std::string, std::string>("x.jsonl.zst", zstd_frame(text))}) {
    for (std::size_t end = 1; end < whole.size(); ++end)
      EXPECT_NE(refusal(job({write(name, whole.substr(0, end))}, "text")), "") << name << " cut after " << end;
    EXPECT_THAT(refusal(job({write(name, whole + "rubbish")}, "text")), HasSubstr(name + ": is not "));
    EXPECT_THAT(refusal(job({write(name, text)}, "text")), HasSubstr("give it the name of what it is"));
  }
  std::string damaged = gzip_member(text);
  damaged[20] ^= 1;
  EXPECT_THAT(refusal(job({write("x.jsonl.gz", damaged)}, "text")), HasSubstr("incorrect data check"));
  EXPECT_THAT(refusal(job({write("x.jsonl.zst", zstd_frame(text, 31))}, "text")), HasSubstr("too much memory"));
  EXPECT_THAT(refusal(job({write("x.jsonl.gz", gzip_member(text).substr(0, 30))}, "text")),
              HasSubstr("ends in the middle of its gzip data"));
}

TEST_F(Corpus, WhatIsLongerThanTheLimitIsRefusedHoweverSmallItsFile) {
  CorpusJob one = job({write("bomb.txt.zst", zstd_bomb('a', 100'000))});  // 12 GiB in 400 KB
  one.longest = 1 << 20;
  EXPECT_THAT(refusal(one), HasSubstr("bomb.txt.zst: the document is longer than 1 MiB; split it, or give --longest"));
  one = job({write("bomb.jsonl.zst", zstd_frame("{\"text\":\"a\"}\n") + zstd_bomb('a', 100'000))}, "text");
  one.longest = 1 << 20;
  EXPECT_THAT(refusal(one), HasSubstr("bomb.jsonl.zst:2: the line is longer than 1 MiB"));
  one = job({write("long.jsonl", "\n{\"text\":\"" + std::string(1 << 20, 'a') + "\"}\n")}, "text");
  one.longest = 1 << 20;
  EXPECT_THAT(refusal(one), HasSubstr("long.jsonl:2: the line is longer than 1 MiB"));
  one.longest = 2 << 20;
  EXPECT_TRUE(encode_corpus(one).complete);
}

TEST_F(Corpus, BadLinesAreNamedByFileAndLine) {
  const std::string good = "{\"text\":\"good\"}\n";
  const auto said = [&](const std::string& lines) { return refusal(job({write("x.jsonl", lines)}, "text", 3)); };
  EXPECT_THAT(said(good + good + "{\"text\":\"bad}\n" + good), HasSubstr("x.jsonl:3: is not JSON at byte 14"));
  EXPECT_THAT(said(good + "\n\n{\"words\":\"a\"}\n"), HasSubstr("x.jsonl:4: has no key 'text'; mend the line"));
  EXPECT_THAT(said("{\"text\":\"\xff\"}\n"),
              HasSubstr("x.jsonl:1: is not JSON at byte 10: what is there is not UTF-8"));
  EXPECT_THAT(said(std::string(1, '\0')), HasSubstr("x.jsonl:1: is not JSON at byte 1"));
  EXPECT_THAT(said("\n\n"), HasSubstr("there is no text in it"));
  EXPECT_THAT(said("{\"text\":\"\"}\n"), HasSubstr("there is no text in it"));
  // Of several mistakes the first in the input, whatever thread found which.
  std::string many;
  for (int i = 0; i < 200'000; ++i) many += i == 100'000 || i == 150'000 ? "{\"text\":1}\n" : good;
  for (int i = 0; i < 3; ++i) EXPECT_THAT(said(many), HasSubstr("x.jsonl:100001: has a key 'text' that is no text"));
  EXPECT_TRUE(encode_corpus(job({write("x.jsonl", "\xEF\xBB\xBF" + good)}, "text")).complete) << "a byte order mark";
}

TEST_F(Corpus, FoldersAreReadByNamesWhereAKeyIsGiven) {
  write("d/b.jsonl", "{\"text\":\"2\"}");
  write("d/a/z.ndjson.gz", gzip_member("{\"text\":\"1\"}\n"));
  write("d/notes.txt", "no");
  const CorpusResult result = encode_corpus(job({(folder_ / "d").string()}, "text"));
  EXPECT_EQ(documents_of_out(), "1|2|");
  EXPECT_EQ(result.passed_over, 1);
  fs::remove(folder_ / "out.tokens");
  fs::remove(folder_ / "d/b.jsonl");
  fs::remove_all(folder_ / "d/a");
  EXPECT_THAT(refusal(job({(folder_ / "d").string()}, "text")), HasSubstr("no file in it is called .jsonl"));
  EXPECT_THAT(refusal(job({write("x.jsonl", "{}")}), ExitCode::usage), HasSubstr("as in --key text"));
  EXPECT_THAT(refusal(job({"-", "-"}), ExitCode::usage), HasSubstr("standard input is named twice"));
}

}  // namespace
}  // namespace lockstep
