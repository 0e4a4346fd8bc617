// Token files that say which tokens are targets: what is marked is read back, in any order of stops; damage is noticed;
// samples have the marked targets alone.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "base/checksum.h"
#include "data/chat/conversation_encoder.h"
#include "data/corpus/corpus_encoder.h"
#include "data/corpus/corpus_state.h"
#include "data/document_index_builder.h"
#include "data/packed_dataset.h"
#include "data/temp_folder.h"
#include "data/token_file.h"
#include "data/token_file_writer.h"
#include "data/windowed_dataset.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;
using Bytes = std::vector<std::uint8_t>;

struct Marked {
  Ids ids;
  Bytes targets;
};

std::vector<Marked> random_documents(std::size_t count, unsigned seed, std::size_t longest, std::int32_t vocabulary) {
  std::mt19937 random(seed);
  std::vector<Marked> all(count);
  for (Marked& one : all) {
    const std::size_t size = 1 + random() % longest, often = 1 + random() % 5;
    for (std::size_t i = 0; i < size; ++i) {
      one.ids.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(vocabulary)));
      one.targets.push_back(random() % often == 0 && random() % 3 > 0 ? 1 : 0);
    }
  }
  return all;
}
Marked joined(const std::vector<Marked>& all) {
  Marked whole;
  for (const Marked& one : all) {
    whole.ids.insert(whole.ids.end(), one.ids.begin(), one.ids.end());
    whole.targets.insert(whole.targets.end(), one.targets.begin(), one.targets.end());
  }
  return whole;
}

class MarkedTokens : public TempFolder {
 protected:
  fs::path path() const { return folder_ / "t.tokens"; }
  void write_documents(const std::vector<Marked>& all, std::int64_t vocabulary) const {
    TokenFileWriter writer(path(), vocabulary, Marks::yes);
    for (const Marked& one : all) writer.add(one.ids, one.targets);
    writer.finish();
  }
};

TEST_F(MarkedTokens, GiveBackWhatWasMarkedForEverySizeAndWidth) {
  for (const std::int32_t vocabulary : {2, 300, 70'000})
    for (std::size_t count = 1; count < 140; count += vocabulary == 300 ? 3 : 37) {
      Marked one = random_documents(1, static_cast<unsigned>(count), 1, vocabulary)[0];
      one.ids.resize(count, vocabulary - 1);
      one.targets.resize(count);
      for (std::size_t i = 0; i < count; ++i) one.targets[i] = i % 3 == count % 3 || i + 1 == count ? 1 : 0;
      write_documents({one, one}, vocabulary);
      const TokenFile file(path());
      file.verify();
      ASSERT_TRUE(file.marks_targets());
      Ids ids(count * 2), targets(count * 2), expected(count * 2);
      file.read(0, ids);
      file.read_targets(0, targets);
      for (std::size_t i = 0; i < count * 2; ++i) {
        EXPECT_EQ(ids[i], one.ids[i % count]);
        expected[i] = one.targets[i % count] != 0 ? ids[i] : kNoTarget;
      }
      ASSERT_EQ(targets, expected) << count;
      EXPECT_EQ(file.count_targets(0, file.tokens()), file.header().targets);
      EXPECT_EQ(file.count_targets(1, file.tokens() - 1), file.header().targets - one.targets[0]);
      EXPECT_THAT(files(), testing::ElementsAre("t.tokens"));
    }
}

TEST_F(MarkedTokens, HaveTheBytesThatTheFormatSays) {
  write_documents({{{1, 2}, {0, 1}}, {{3}, {1}}}, 4);
  const std::string bytes = bytes_of(path());
  ASSERT_EQ(bytes.size(), 193u);
  EXPECT_EQ(bytes[8], 2) << "the version";
  EXPECT_EQ(bytes.substr(48, 8), std::string("\2\0\0\0\0\0\0\0", 8)) << "targets";
  EXPECT_EQ(bytes.substr(144, 48), std::string(48, '\0'));
  EXPECT_EQ(bytes[192], 6);
  // All marked or none: a file without marks is as before, and every token of it counts.
  TokenFileWriter plain(folder_ / "plain.tokens", 4);
  plain.add(Ids{1, 2});
  plain.add(Ids{3});
  plain.finish();
  const TokenFile file(folder_ / "plain.tokens");
  EXPECT_EQ(bytes_of(folder_ / "plain.tokens")[8], 1);
  EXPECT_FALSE(file.marks_targets());
  EXPECT_EQ(file.count_targets(0, 3), 3);
}

TEST_F(MarkedTokens, AreTheSameWhereverTheWriterWasStopped) {
  const std::vector<Marked> all = random_documents(60, 3, 40, 300);
  write_documents(all, 300);
  const std::string expected = bytes_of(path());
  std::mt19937 random(4);
  for (int trial = 0; trial < 8; ++trial) {
    WrittenTokens before;
    std::size_t at = 0;
    while (at < all.size()) {
      std::optional<TokenFileWriter> writer;
      if (at == 0)
        writer.emplace(path(), 300, Marks::yes);
      else
        writer.emplace(path(), 300, before, Marks::yes);
      for (std::size_t more = 1 + random() % 20; more > 0 && at < all.size(); --more, ++at)
        writer->add(all[at].ids, all[at].targets);
      before = writer->sync();
      // What is written after that is not continued, also where it has reached the disk.
      if (at < all.size() && random() % 2 == 0) {
        writer->add(Ids(9, 1), Bytes(9, 1));
        writer->sync();
      }
      writer->keep();
      if (at == all.size()) writer->finish();
    }
    ASSERT_EQ(bytes_of(path()) == expected, true) << trial;
  }
  EXPECT_THAT(files(), testing::ElementsAre("t.tokens"));
}

std::string with_checksums(std::string bytes) {
  const auto put = [&](std::size_t at, std::uint64_t value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  put(40, checksum(std::as_bytes(std::span(bytes).subspan(64))));
  put(56, checksum(std::as_bytes(std::span(bytes).first(56))));
  return bytes;
}

TEST_F(MarkedTokens, OfAnyBytesAreRefusedInOneLine) {
  write_documents({{{1, 2, 299}, {0, 1, 1}}, {{4}, {1}}, {{5, 6}, {0, 0}}}, 300);
  const std::string good = bytes_of(path());
  ASSERT_EQ(good.size(), 193u);
  EXPECT_EQ(with_checksums(good), good);
  const auto opened = [](const std::string& bytes) { return TokenFile(std::as_bytes(std::span(bytes)), "hostile"); };
  const auto said = [&](const std::string& bytes) { return user_error([&] { opened(bytes).verify(); }); };
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_NE(said(good.substr(0, size)), "") << size;
  for (std::size_t at = 0; at < good.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ 1 << bit);
      EXPECT_NE(said(bytes), "") << at << '.' << bit;
    }
  const auto with = [&](std::size_t at, std::uint64_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return with_checksums(bytes);
  };
  EXPECT_THAT(said(with(48, 0)), HasSubstr("0 targets, of 6 tokens"));
  EXPECT_THAT(said(with(48, 7)), HasSubstr("7 targets, of 6 tokens"));
  EXPECT_THAT(said(with(48, 2)), HasSubstr("marks 3 targets, and its header says 2"));
  EXPECT_THAT(said(with(48, std::numeric_limits<std::uint64_t>::max())), HasSubstr("targets, of 6 tokens"));
  EXPECT_THAT(said(with(8, 1 | std::uint64_t{2} << 32)), HasSubstr("bytes 48 to 55 are not zero"));
  EXPECT_THAT(said(with(8, 3 | std::uint64_t{2} << 32)), HasSubstr("is of version 3; versions 1 and 2 can be read"));
  std::string bytes = good;
  bytes[192] = static_cast<char>(bytes[192] | 0x40);
  EXPECT_THAT(said(with_checksums(bytes)), HasSubstr("the last byte marks tokens that are not there"));
  bytes = good;
  bytes[170] = 1;
  EXPECT_THAT(said(with_checksums(bytes)), HasSubstr("the padding after the document index is not zero"));
}

// The fingerprint is of the marks too.
TEST_F(MarkedTokens, OfOtherMarksAreOtherData) {
  write_documents({{{1, 2, 3}, {0, 1, 1}}}, 4);
  const std::uint64_t one = TokenFile(path()).fingerprint();
  write_documents({{{1, 2, 3}, {1, 1, 0}}}, 4);
  EXPECT_NE(TokenFile(path()).fingerprint(), one);
}

// Samples against a plain loop over the documents' tokens: each is told by its place.
TEST_F(MarkedTokens, GiveSamplesTheirTargetsAndNoOthers) {
  constexpr std::int64_t T = 24;
  std::vector<Marked> all = random_documents(200, 5, 60, 2);
  Marked whole = joined(all);
  std::int32_t next = 0;
  for (Marked& one : all)
    for (std::int32_t& id : one.ids) id = next++;  // token i is i
  write_documents(all, std::ssize(whole.ids));
  const TokenFile file(path());
  std::vector<bool> first(whole.ids.size());  // of its document
  std::size_t at = 0;
  for (const Marked& one : all) first[at] = true, at += one.ids.size();
  for (const Documents kind : {Documents::masked, Documents::packed, Documents::nosplit, Documents::varlen}) {
    const auto index = open_document_index("", file, {kind, T, 0}, "the data");
    const PackedDataset set(file, *index, 0, index->samples());
    std::vector<int> seen(whole.ids.size());
    std::int64_t counted = 0;
    for (std::int64_t s = 0; s < set.samples(); ++s) {
      Ids tokens(T), targets(T);
      set.sample(s, tokens, targets);
      std::int64_t in_sample = 0;
      for (std::size_t t = 0; t < T; ++t) {
        if (targets[t] == kNoTarget) continue;
        const auto target = static_cast<std::size_t>(targets[t]);
        ASSERT_EQ(static_cast<std::size_t>(tokens[t] & ~kBeginsDocument) + 1, target) << "the next token";
        ASSERT_EQ(whole.targets[target], 1);
        ASSERT_FALSE(first[target]) << "of another document";
        ++seen[target], ++counted, ++in_sample;
      }
      if (kind != Documents::masked) {
        EXPECT_GT(in_sample, 0) << "a sample in which nothing is learned";
      }
    }
    // Every marked token that is not its document's first is once a target, but for what is truncated.
    std::int64_t expected = 0, shortened = 0, left_out = 0;
    at = 0;
    for (const Marked& one : all) {
      std::int64_t inside = 0;
      for (std::size_t i = 1; i < one.ids.size(); ++i) {
        const bool cut = kind == Documents::nosplit  ? i >= T
                         : kind == Documents::masked ? at + i > static_cast<std::size_t>(set.samples() * T)
                                                     : false;
        if (cut) continue;
        inside += one.targets[i];
        ASSERT_EQ(seen[at + i], one.targets[i]) << name_of(kind) << ", token " << at + i;
      }
      expected += inside;
      shortened += inside > 0 && one.ids.size() > T ? 1 : 0;
      left_out += inside == 0 ? 1 : 0;
      at += one.ids.size();
    }
    EXPECT_EQ(counted, expected) << name_of(kind);
    EXPECT_EQ(index->shortened(), kind == Documents::nosplit ? shortened : 0);
    EXPECT_EQ(index->left_out(), kind == Documents::masked ? 0 : left_out);
    EXPECT_GT(left_out, 0);
    EXPECT_EQ(index->truncated() + index->tokens(), file.tokens());
  }
  const WindowedDataset windows(file, T, 0, windows_in(file.tokens(), T));
  for (std::int64_t s = 0; s < windows.samples(); ++s) {
    Ids tokens(T), targets(T);
    windows.sample(s, tokens, targets);
    for (std::size_t t = 0; t < T; ++t) {
      const auto target = static_cast<std::size_t>(s * T) + t + 1;
      ASSERT_EQ(targets[t], whole.targets[target] != 0 ? static_cast<std::int32_t>(target) : kNoTarget);
    }
  }
}

TEST_F(MarkedTokens, WithoutATargetInReachAreRefused) {
  Marked late{Ids(50, 1), Bytes(50)};
  late.targets[40] = 1;
  write_documents({late, late}, 4);
  const TokenFile file(path());
  EXPECT_THAT(
      user_error([&] {
        open_document_index("", file, {Documents::nosplit, 16, 0}, "talks.tokens");
      }),
      HasSubstr("talks.tokens: none of the 2 conversations to train on has an answer in its first 16 tokens; use "
                "a larger data.seq, or data.documents=packed"));
  EXPECT_EQ(open_document_index("", file, {Documents::packed, 16, 0}, "talks.tokens")->pieces(0), 1);
}

TEST_F(MarkedTokens, WithoutATargetLeaveNoEvaluationUnsaid) {
  Marked late{Ids(50, 1), Bytes(50)}, early = late;
  late.targets[40] = early.targets[3] = 1;
  write_documents({early, early, late}, 4);
  const TokenFile file(path());
  EXPECT_THAT(
      user_error([&] {
        open_document_index("", file, {Documents::nosplit, 16, 0.1}, "talks.tokens");
      }),
      HasSubstr("talks.tokens: none of the 1 conversations for evaluation has an answer in its first 16 tokens; use "
                "a larger data.seq or data.eval_share"));
}

// A corpus of conversations is the same file for any number of threads, and wherever it was stopped.
class MarkedCorpus : public MarkedTokens {
 protected:
  CorpusJob job(const std::string& input, int threads) const {
    return {.paths = {input},
            .key = "",
            .out = folder_ / "out.tokens",
            .tokenizer = nullptr,
            .conversations = true,
            .chat = std::make_shared<const ChatTemplate>(
                "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}\n{% "
                "endgeneration %}{% else %}{{ m.content }}\n{% endif %}{% endfor %}",
                TemplateValue::Entries{}, "chat.jinja"),
            .threads = threads};
  }
};

std::string many_lines(int count, std::vector<std::string>& each) {
  std::mt19937 random(7);
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const auto text = [&] { return std::string(1 + random() % 300, static_cast<char>('a' + random() % 26)); };
    nlohmann::ordered_json line;
    if (i % 4 == 0)
      line = {{"prompt", text()}, {"completion", text()}};
    else if (i % 9 == 0)
      line = {{"messages", nlohmann::ordered_json::array({{{"role", "user"}, {"content", text()}}})}};
    else
      line = {{"messages", nlohmann::ordered_json::array({{{"role", "user"}, {"content", text()}},
                                                          {{"role", "assistant"}, {"content", text()}}})}};
    each.push_back(line.dump());
    lines += each.back() + "\n";
    if (i % 50 == 0) lines += "\n";
  }
  return lines;
}

TEST_F(MarkedCorpus, IsTheFileOfAPlainLoopForAnyThreadsAndStops) {
  std::vector<std::string> each;
  const std::string input = write("talks.jsonl", many_lines(9000, each));
  ASSERT_GT(fs::file_size(input), std::size_t{2} << 20);
  CorpusJob one = job(input, 1);
  std::int64_t unanswered = 0;
  {
    TokenFileWriter writer(path(), kByteVocabulary, Marks::yes);
    ConversationEncoder encoder(nullptr, 0, one.chat);
    for (const std::string& line : each) {
      Marked made;
      unanswered += encoder.encode(line, "here", made.ids, made.targets).answers == 0 ? 1 : 0;
      writer.add(made.ids, made.targets);
    }
    writer.finish();
  }
  const std::string expected = bytes_of(path());
  for (const int threads : {1, 2, 5}) {
    const CorpusResult result = encode_corpus(job(input, threads));
    EXPECT_EQ(result.unanswered, unanswered);
    EXPECT_GT(unanswered, 500);
    EXPECT_EQ(result.targets, TokenFile(path()).header().targets);
    EXPECT_EQ(bytes_of(one.out) == expected, true) << threads << " threads";
  }
  fs::remove(one.out);
  int calls = 0;
  for (CorpusResult result; !result.complete && calls < 100; ++calls) {
    one.threads = 1 + calls % 3;
    one.proceed = [](const CorpusProgress&) { return false; };
    result = encode_corpus(one);
    EXPECT_EQ(fs::exists(TokenFileWriter::partial_marks_of(one.out)), !result.complete);
  }
  EXPECT_GT(calls, 2);
  EXPECT_EQ(bytes_of(one.out) == expected, true);
  EXPECT_THAT(files(), testing::UnorderedElementsAre("talks.jsonl", "t.tokens", "out.tokens"));
}

TEST_F(MarkedCorpus, OfAnotherTemplateIsNoContinuation) {
  std::vector<std::string> each;
  const std::string input = write("talks.jsonl", many_lines(9000, each));
  CorpusJob one = job(input, 2);
  one.proceed = [](const CorpusProgress&) { return false; };
  ASSERT_FALSE(encode_corpus(one).complete);
  one.chat =
      std::make_shared<const ChatTemplate>("{% generation %}x{% endgeneration %}", TemplateValue::Entries{}, "b");
  EXPECT_THAT(user_error([&] { encode_corpus(one); }),
              HasSubstr("is of other inputs, another tokenizer or other settings"));
}

TEST_F(MarkedCorpus, NamesTheFirstMistakeAndLeavesNothing) {
  std::string lines = R"({"prompt": "a", "completion": "b"})";
  for (int i = 0; i < 5; ++i) lines += "\n" + lines.substr(0, lines.find('\n'));
  const std::string input = write("talks.jsonl", lines + "\n{\"prompt\": 1}\n{\n");
  EXPECT_THAT(user_error([&] { encode_corpus(job(input, 3)); }),
              HasSubstr("talks.jsonl:7: \"prompt\" is no text; write {\"messages\": [{\"role\": \"user\""));
  EXPECT_THAT(files(), testing::ElementsAre("talks.jsonl"));
  const std::string mute = write("mute.jsonl", R"({"messages": [{"role": "user", "content": "x"}]})");
  EXPECT_THAT(user_error([&] { encode_corpus(job(mute, 1)); }),
              HasSubstr("mute.jsonl: none of its 1 conversations has an answer of the assistant; name a file"));
}

}  // namespace
}  // namespace lockstep
