// Scores of texts: windows that count each token once, losses that a token-by-token walk gives, and choices as
// lm-evaluation-harness scores them.
#include "train/scoring.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "data/byte_tokenizer.h"
#include "support/tiny_specs.h"
#include "tensor/make_stream.h"
#include "tensor/transfer.h"

namespace lockstep::tests {
namespace {

using testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

TEST(SlidingWindows, CountEachTargetOnceWithEnoughBeforeIt) {
  for (const auto& [targets, length, stride] :
       {std::array<std::int64_t, 3>{1, 4, 2}, {4, 4, 2}, {5, 4, 2}, {17, 4, 1}, {17, 4, 4}, {100, 7, 3}, {0, 4, 2}}) {
    std::int64_t next = 0;
    for (const ScoredWindow& w : sliding_windows(targets, length, stride)) {
      EXPECT_EQ(w.counted, next);
      EXPECT_LE(w.end - w.begin, length);
      EXPECT_GT(w.end, w.counted);
      EXPECT_TRUE(w.begin == 0 || w.counted - w.begin >= length - stride) << "the first that counts sees too little";
      next = w.end;
    }
    EXPECT_EQ(next, targets) << targets << " in windows of " << length << " every " << stride;
  }
}

// A tiny model of random weights, and the plain way to its log probabilities: one token after the other.
class Scoring : public ::testing::Test {
 protected:
  static constexpr std::int64_t kLength = 12;

  void make(const ModelSpec& spec) {
    generator_.reset();
    stream_.reset();
    memory_ = make_memory(Device::cpu, ledger_);
    stream_ = make_stream(*memory_, 1);
    generator_.emplace(
        Generator::Options{
            .spec = spec, .positions = kLength, .prefill = 1, .score_tokens = kLength, .precision = Precision::fp64},
        *memory_, *stream_);
    std::int64_t seed = 1;
    for (const StateTensor& one : generator_->weights()) {
      std::vector<double> values(static_cast<std::size_t>(one.live.elements()));
      for (double& value : values) value = std::sin(static_cast<double>(seed++) * 0.7) * 0.5;
      upload(one.live, values.data(), *stream_);
    }
  }
  // -log P(target | inputs) of the last of these.
  double plain_loss(const Ids& inputs, std::int32_t target) {
    generator_->clear();
    const std::span<const double> logits = generator_->feed(inputs);
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    return std::log(sum) - logits[static_cast<std::size_t>(target)];
  }
  Ids text(std::int64_t count, std::int64_t vocabulary) const {
    Ids ids;
    for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>((i * i + 3 * i + 1) % vocabulary));
    return ids;
  }

  Ledger ledger_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Stream> stream_;
  std::optional<Generator> generator_;
};

TEST_F(Scoring, ADocumentsLossIsThatOfATokenByTokenWalkInEveryFamily) {
  for (const NamedSpec& named : tiny_specs()) {
    if (named.spec.max_positions < kLength) continue;
    make(named.spec);
    const Ids document = text(29, named.spec.vocabulary);
    for (const std::int64_t stride : {1, 5, 12}) {
      Ids all{2};
      all.insert(all.end(), document.begin(), document.end());
      double expected = 0;
      for (std::int64_t target = 0; target < 29; ++target) {
        // The window in which it counts: the first that reaches it.
        std::int64_t begin = 0;
        while (begin + kLength <= target) begin += stride;
        expected +=
            plain_loss(Ids(all.begin() + begin, all.begin() + target + 1), document[static_cast<std::size_t>(target)]);
      }
      const TextLoss loss = document_loss(*generator_, 2, document, kLength, stride);
      EXPECT_EQ(loss.tokens, 29);
      EXPECT_NEAR(loss.nats, expected, 1e-9 * expected) << named.name << ", stride " << stride;
    }
  }
}

// Letters by themselves, but for "ab" and " a", which are one token each: where a text is cut decides.
Ids encode_letters(const std::string& text) {
  Ids ids;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string two = text.substr(i, 2);
    if (two == "ab" || two == " a") {
      ids.push_back(two == "ab" ? 1 : 2);
      ++i;
    } else {
      ids.push_back(text[i] == ' ' ? 3 : text[i] - 'a' + 4);
    }
  }
  return ids;
}

TEST(EncodePair, ContextAndContinuationAreOneText) {
  const auto pair = [](const std::string& context, const std::string& continuation) {
    return encode_pair(context, continuation, encode_letters);
  };
  EXPECT_EQ(pair("c", " d"), std::pair(Ids({6}), Ids({3, 7})));
  EXPECT_EQ(pair("c ", "a"), std::pair(Ids({6}), Ids({2}))) << "the blank belongs to what follows";
  EXPECT_EQ(pair("ca", "b"), std::pair(Ids({6, 1}), Ids())) << "as many as the context alone has are its own";
  EXPECT_EQ(pair("", "ab"), std::pair(Ids(), Ids({1})));
  EXPECT_EQ(pair("  ", "d"), std::pair(Ids(), Ids({3, 3, 7})));
}

TEST_F(Scoring, ChoicesAreTheSumsOfTheirTokensAndTheBestIsTaken) {
  ModelSpec spec;
  for (const NamedSpec& named : tiny_specs())
    if (named.spec.vocabulary >= 12 && named.spec.max_positions >= kLength) spec = named.spec;
  make(spec);
  const ChoiceQuestion question{.context = "cde ", .choices = {"d", "ab", "cc", "eé"}, .answer = 0};
  const EncodeText encode = [&](const std::string& text) {
    Ids ids = encode_letters(text);
    for (std::int32_t& id : ids) id = (id % 8 + 8) % 8;
    return ids;
  };
  const ChoiceScore score = score_choices(*generator_, question, "", 0, encode, kLength);
  std::vector<double> sums, by_length;
  const double lengths[] = {1, 2, 2, 2};  // characters, not bytes
  for (std::size_t i = 0; i < question.choices.size(); ++i) {
    const Ids context = encode("cde");
    Ids all = encode("cde " + question.choices[i]);
    double sum = 0;
    for (std::size_t at = context.size(); at < all.size(); ++at)
      sum -= plain_loss(Ids(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(at)), all[at]);
    EXPECT_NEAR(score.sums[i], sum, 1e-9 * std::fabs(sum)) << i;
    sums.push_back(sum), by_length.push_back(sum / lengths[i]);
  }
  EXPECT_EQ(static_cast<std::ptrdiff_t>(score.best), std::ranges::max_element(sums) - sums.begin());
  EXPECT_EQ(static_cast<std::ptrdiff_t>(score.best_by_length), std::ranges::max_element(by_length) - by_length.begin());
  // What is too long loses its beginning.
  const ChoiceQuestion long_one{.context = "cdecdecdecdecdecde", .choices = {"dd", "e"}, .answer = 0};
  const Ids whole = encode(long_one.context + "dd");
  const Ids last(whole.end() - kLength - 1, whole.end());
  double sum = 0;
  for (std::size_t at = last.size() - 2; at < last.size(); ++at)
    sum -= plain_loss(Ids(last.begin(), last.begin() + static_cast<std::ptrdiff_t>(at)), last[at]);
  EXPECT_NEAR(score_choices(*generator_, long_one, "", 0, encode, kLength).sums[0], sum, 1e-9 * std::fabs(sum));
}

TEST(ParseQuestion, SaysWhatIsWrong) {
  const auto problem_of = [](const char* line) {
    std::string problem;
    const bool read = parse_question(line, problem).has_value();
    EXPECT_EQ(read, problem.empty());
    return problem;
  };
  EXPECT_EQ(problem_of(R"({"context":"a","choices":["b","c"],"answer":1,"id":7})"), "");
  EXPECT_EQ(problem_of("x"), "is not valid JSON at byte 1");
  EXPECT_EQ(problem_of("[]"), "is no JSON object");
  EXPECT_EQ(problem_of(R"({"context":"a","context":"b","choices":["b","c"],"answer":1})"),
            "has 'context' twice in one object");
  EXPECT_EQ(problem_of(R"({"choices":["b","c"],"answer":1})"), "has no text 'context'");
  EXPECT_THAT(problem_of(R"({"context":"a","choices":["b"],"answer":0})"), testing::HasSubstr("two texts or more"));
  EXPECT_THAT(problem_of(R"({"context":"a","choices":["b",""],"answer":0})"), testing::HasSubstr("none of them empty"));
  EXPECT_THAT(problem_of(R"({"context":"a","choices":["b","c"],"answer":2})"), testing::HasSubstr("has no 'answer'"));
  EXPECT_THAT(problem_of(R"({"context":"a","choices":["b","c"],"answer":"b"})"), testing::HasSubstr("has no 'answer'"));
}

}  // namespace
}  // namespace lockstep::tests
