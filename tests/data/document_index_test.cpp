// Samples of documents: against what plain loops over the documents make of them, and what damage to their index is.
#include "data/document_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "base/checksum.h"
#include "base/error.h"
#include "data/document_index_builder.h"
#include "data/packed_dataset.h"
#include "data/windowed_dataset.h"
#include "temp_folder.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

// Token i is i: each is told from all others.
class CountedSource final : public TokenSource {
 public:
  explicit CountedSource(std::vector<std::int64_t> lengths) : lengths_(std::move(lengths)) {
    for (const std::int64_t length : lengths_) tokens_ += length;
  }
  std::int64_t tokens() const override { return tokens_; }
  std::int64_t vocabulary() const override { return tokens_; }
  void read(std::int64_t first, std::span<std::int32_t> to) const override {
    ASSERT_LE(first + std::ssize(to), tokens_);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::int32_t>(first + static_cast<std::int64_t>(i));
  }
  bool each_document(const VisitDocument& visit) const override {
    std::int64_t at = 0;
    for (const std::int64_t length : lengths_) {
      if (length > 0) visit(at, length);
      at += length;
    }
    return !lengths_.empty();
  }
  std::uint64_t fingerprint() const override { return checksum(std::as_bytes(std::span(lengths_))); }
  // The document of each token.
  std::vector<std::int64_t> documents() const {
    std::vector<std::int64_t> all;
    for (std::size_t d = 0; d < lengths_.size(); ++d) all.insert(all.end(), static_cast<std::size_t>(lengths_[d]), d);
    return all;
  }

 private:
  std::vector<std::int64_t> lengths_;
  std::int64_t tokens_ = 0;
};

// Lengths as of texts on the web: log-normal, from a few tokens to many thousands.
std::vector<std::int64_t> text_lengths(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < count; ++i) {
    double normal = -6;
    for (int k = 0; k < 12; ++k) normal += static_cast<double>(random() >> 1) / static_cast<double>(1U << 31);
    lengths.push_back(1 + static_cast<std::int64_t>(std::exp(6.2 + 1.1 * normal)));
  }
  return lengths;
}

struct Sample {
  std::vector<std::int32_t> tokens, targets;
};
Sample sample_of(const Dataset& set, std::int64_t index) {
  const auto T = static_cast<std::size_t>(set.sequence());
  Sample s{std::vector<std::int32_t>(T), std::vector<std::int32_t>(T)};
  set.sample(index, s.tokens, s.targets);
  return s;
}

struct Made {
  CountedSource source;
  DocumentIndexSettings settings;
  std::unique_ptr<const DocumentIndex> index;
  Made(std::vector<std::int64_t> lengths, const DocumentIndexSettings& how)
      : source(std::move(lengths)), settings(how), index(open_document_index("", source, how, "the data")) {}
  PackedDataset all() const { return {source, *index, 0, index->samples(), settings.kind == Documents::varlen}; }
};

// Walks all samples: `visit(sample, token)` for each that is no padding, after what every sample promises was checked.
template <class Visit>
void each_token(const Made& made, Visit&& visit) {
  const std::vector<std::int64_t> document = made.source.documents();
  const PackedDataset all = made.all();
  for (std::int64_t s = 0; s < all.samples(); ++s) {
    const auto [tokens, targets] = sample_of(all, s);
    bool padding = false;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      if (made.settings.kind == Documents::varlen && (padding || tokens[t] == kPadding)) {
        padding = true;
        ASSERT_TRUE(t > 0 && tokens[t] == kPadding && targets[t] == kNoTarget) << s << ", " << t;
        continue;
      }
      const bool begins = (tokens[t] & kBeginsDocument) != 0;
      const std::int32_t token = tokens[t] & ~kBeginsDocument;
      // Where tokens do not follow each other, a document begins; so it does at every token of the padding.
      const bool follows = t > 0 && token == (tokens[t - 1] & ~kBeginsDocument) + 1;
      const auto at = static_cast<std::size_t>(token);
      // Pieces are in the order of the data: token 0 itself can only come first.
      padding = padding || (t > 0 && token == 0);
      if (padding) {
        ASSERT_TRUE(begins && token == 0 && targets[t] == kNoTarget) << s << ", " << t;
        continue;
      }
      ASSERT_EQ(begins, !follows || document[at] != document[at - 1]) << s << ", " << t;
      // The next token of its document, here or in another sample; after the last one, none.
      const bool last = at + 1 == document.size() || document[at + 1] != document[at];
      if (made.settings.kind == Documents::nosplit && !last && targets[t] == kNoTarget)
        ASSERT_TRUE(t + 1 == tokens.size()) << "a document that is truncated fills a sample";
      else
        ASSERT_EQ(targets[t], last ? kNoTarget : token + 1) << s << ", " << t;
      visit(s, at);
    }
  }
}

TEST(DocumentIndex, PacksEveryTokenOnceAndFillsNearlyAllRoom) {
  for (const std::int64_t T : {64, 500, 2048}) {
    const Made made(text_lengths(4000, 1), {Documents::packed, T, 0.05});
    std::vector<int> times(static_cast<std::size_t>(made.source.tokens()));
    each_token(made, [&](std::int64_t, std::size_t token) { ++times[token]; });
    EXPECT_EQ(std::ranges::count(times, 1), made.source.tokens()) << T;
    EXPECT_EQ(made.index->tokens(), made.source.tokens());
    EXPECT_EQ(made.index->truncated(), 0);
    EXPECT_GE(made.index->filled(), 0.99) << T;
  }
}

TEST(DocumentIndex, SplitsOnlyWhatIsLongerThanASample) {
  const Made made({9, 3, 25, 10, 10, 1}, {Documents::packed, 10});
  std::map<std::int64_t, std::int64_t> pieces;  // by their first token
  for (std::int64_t s = 0; s < made.index->samples(); ++s)
    for (std::int64_t i = 0; i < made.index->pieces(s); ++i) {
      const auto piece = made.index->piece(s, i);
      pieces[piece.first] = piece.count * (piece.continues ? -1 : 1);
    }
  EXPECT_EQ(pieces, (std::map<std::int64_t, std::int64_t>{
                        {0, 9}, {9, 3}, {12, -10}, {22, -10}, {32, 5}, {37, 10}, {47, 10}, {57, 1}}));
  EXPECT_EQ(made.index->samples(), 6);
}

TEST(DocumentIndex, WithoutSplittingTruncatesAndPads) {
  const std::vector<std::int64_t> lengths = text_lengths(700, 2);
  const std::int64_t T = 300;
  const Made made(lengths, {Documents::nosplit, T, 0.1});
  std::vector<std::int64_t> seen(lengths.size()), sample(lengths.size(), -1);
  const std::vector<std::int64_t> document = made.source.documents();
  each_token(made, [&](std::int64_t s, std::size_t token) {
    const auto d = static_cast<std::size_t>(document[token]);
    ASSERT_TRUE(sample[d] < 0 || sample[d] == s) << "document " << d << " is in two samples";
    sample[d] = s;
    ++seen[d];
  });
  std::int64_t truncated = 0;
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    EXPECT_EQ(seen[d], std::min(lengths[d], T)) << d;
    truncated += std::max<std::int64_t>(0, lengths[d] - T);
  }
  EXPECT_GT(truncated, 0);
  EXPECT_EQ(made.index->truncated(), truncated);
}

// Documents in their order; each sample is as long as they are until one does not fit.
TEST(DocumentIndex, OfVariableLengthHasEveryTokenOnceAndInOrder) {
  std::vector<std::int64_t> lengths = text_lengths(700, 8);
  lengths[3] = 0;  // as other programs may write them; no sample has it
  const std::int64_t T = 300;
  const Made made(lengths, {Documents::varlen, T, 0.1});
  std::int64_t next = 0, of_sample = -1, begin = 0;
  std::vector<std::int64_t> begins;
  each_token(made, [&](std::int64_t s, std::size_t token) {
    ASSERT_EQ(static_cast<std::int64_t>(token), next);
    if (s != of_sample) {
      ASSERT_EQ(s, of_sample + 1);
      ASSERT_LE(next - begin, T);
      of_sample = s, begin = next;
      begins.push_back(next);
    }
    ++next;
  });
  EXPECT_EQ(next, made.source.tokens());
  EXPECT_EQ(made.index->truncated(), 0);
  EXPECT_GT(made.source.tokens(), 0.6 * static_cast<double>(T * std::ssize(begins)));
  // No sample could have had the piece that begins the next one.
  for (std::int64_t s = 0; s + 1 < made.index->samples(); ++s) {
    std::int64_t tokens = 0;
    for (std::int64_t i = 0; i < made.index->pieces(s); ++i) tokens += made.index->piece(s, i).count;
    EXPECT_TRUE(s + 1 == made.index->training_samples() || tokens + made.index->piece(s + 1, 0).count > T) << s;
  }
}

TEST(DocumentIndex, OfVariableLengthSplitsWhatIsLongerThanASample) {
  const Made made({9, 3, 25, 4, 1}, {Documents::varlen, 10});
  std::vector<std::vector<std::int64_t>> samples;
  for (std::int64_t s = 0; s < made.index->samples(); ++s) {
    samples.emplace_back();
    for (std::int64_t i = 0; i < made.index->pieces(s); ++i)
      samples.back().push_back(made.index->piece(s, i).count * (made.index->piece(s, i).continues ? -1 : 1));
  }
  EXPECT_EQ(samples, (std::vector<std::vector<std::int64_t>>{{9}, {3}, {-10}, {-10}, {5, 4, 1}}));
}

TEST(DocumentIndex, MasksTheWindowsOfAStream) {
  const Made made(text_lengths(40, 3), {Documents::masked, 128, 0.2});
  const WindowSplit split = split_windows("", made.source.tokens(), 128, 0.2);
  EXPECT_EQ(made.index->training_samples(), split.train);
  EXPECT_EQ(made.index->evaluation_samples(), split.eval);
  std::int64_t next = 0;
  each_token(made, [&](std::int64_t s, std::size_t token) {
    ASSERT_EQ(static_cast<std::int64_t>(token), next++);
    ASSERT_EQ(s, static_cast<std::int64_t>(token) / 128);
  });
  EXPECT_EQ(next, (split.train + split.eval) * 128);
}

TEST(DocumentIndex, KeepsTheLastDocumentsForEvaluation) {
  for (const Documents kind : {Documents::packed, Documents::nosplit, Documents::varlen}) {
    const Made made(text_lengths(500, 4), {kind, 256, 0.1});
    std::int64_t last_trained = -1, first_evaluated = made.source.tokens(), evaluated = 0;
    each_token(made, [&](std::int64_t s, std::size_t at) {
      const auto token = static_cast<std::int64_t>(at);
      if (s < made.index->training_samples())
        last_trained = std::max(last_trained, token);
      else
        first_evaluated = std::min(first_evaluated, token), ++evaluated;
    });
    EXPECT_LT(last_trained, first_evaluated);
    EXPECT_GE(made.source.tokens() - first_evaluated, made.source.tokens() / 10);
    EXPECT_GT(evaluated, 0);
  }
}

// Best fit makes samples of short documents last; a run of samples is to be like all of them.
TEST(DocumentIndex, OrdersSamplesAtRandomAndAlwaysAlike) {
  const Made made(text_lengths(3000, 5), {Documents::packed, 1024});
  std::int64_t first = 0, second = 0;
  const std::int64_t samples = made.index->samples();
  for (std::int64_t s = 0; s < samples; ++s) (s < samples / 2 ? first : second) += made.index->pieces(s);
  EXPECT_NEAR(static_cast<double>(first) / static_cast<double>(second), 1, 0.3);
  EXPECT_EQ(build_document_index(made.source, made.settings, ""), build_document_index(made.source, made.settings, ""));
}

TEST(DocumentIndex, RefusesDataThatDoesNotKnowItsDocuments) {
  class Row final : public TokenSource {
    std::int64_t tokens() const override { return 100; }
    std::int64_t vocabulary() const override { return 1; }
    void read(std::int64_t, std::span<std::int32_t> to) const override { std::ranges::fill(to, 0); }
    std::uint64_t fingerprint() const override { return 0; }
  } row;
  for (const Documents kind : {Documents::masked, Documents::packed, Documents::nosplit, Documents::varlen}) {
    try {
      open_document_index("", row, {kind, 10}, "row.tokens");
      FAIL();
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input_file);
      EXPECT_THAT(error.what(), HasSubstr("row.tokens: it does not say where documents end"));
    }
  }
  const CountedSource one({100});
  EXPECT_THROW(open_document_index("", one, {Documents::packed, 10, 0.1}, "one"), UserError);
  EXPECT_EQ(open_document_index("", one, {Documents::packed, 10}, "one")->samples(), 10);
}

class IndexFile : public TempFolder {
 protected:
  std::unique_ptr<const DocumentIndex> open(const TokenSource& source) const {
    return open_document_index(path_, source, settings_, "the data");
  }
  std::vector<char> content() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::vector<char>& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc).write(bytes.data(), std::ssize(bytes));
  }
  void SetUp() override {
    TempFolder::SetUp();
    path_ = folder_ / "data.index";
  }
  std::filesystem::path path_;
  DocumentIndexSettings settings_{Documents::packed, 100, 0.1};
  CountedSource source_{text_lengths(60, 6)};
};

TEST_F(IndexFile, IsWrittenOnceAndMappedAfterwards) {
  const std::uint64_t built = open(source_)->fingerprint();
  const auto written = std::filesystem::last_write_time(path_);
  const auto again = open(source_);
  EXPECT_EQ(again->fingerprint(), built);
  EXPECT_EQ(again->bytes(), 0) << "it is in memory";
  EXPECT_EQ(std::filesystem::last_write_time(path_), written);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path_.parent_path()), {}), 1) << "something is left";
}

TEST_F(IndexFile, OfOtherDataOrSettingsIsReplaced) {
  const std::uint64_t before = open(source_)->fingerprint();
  const CountedSource other(text_lengths(60, 7));
  EXPECT_NE(open(other)->fingerprint(), before);
  const std::vector<char> of_other = content();
  for (auto change :
       {+[](DocumentIndexSettings& s) { s.kind = Documents::nosplit; }, +[](DocumentIndexSettings& s) { s.T = 99; },
        +[](DocumentIndexSettings& s) { s.eval_share = 0.2; }}) {
    put(of_other);
    DocumentIndexSettings changed = settings_;
    change(changed);
    open_document_index(path_, other, changed, "the data");
    EXPECT_NE(content(), of_other);
  }
}

TEST_F(IndexFile, IsInMemoryWhereNothingCanBeWritten) {
  path_ = folder_ / "missing" / "data.index";
  EXPECT_GT(open(source_)->bytes(), 0);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(IndexFile, IsRefusedWhenAnyByteIsAnother) {
  settings_.T = 1000;
  open(source_);
  const std::vector<char> good = content();
  ASSERT_LT(good.size(), 3000U);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::vector<char> bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    put(bad);
    try {
      open(source_);
      ADD_FAILURE() << "byte " << at;
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input_file);
      EXPECT_THAT(error.what(), HasSubstr(path_.string()));
    }
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, std::size_t{100}, good.size() - 1}) {
    put({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)});
    EXPECT_THROW(open(source_), UserError) << size;
  }
}

}  // namespace
}  // namespace lockstep::tests
