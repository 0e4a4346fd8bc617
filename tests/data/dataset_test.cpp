// Datasets: targets are the next tokens, every token is predicted once, and training never sees what evaluation
// predicts.
#include "data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "data/synthetic_dataset.h"
#include "data/temp_folder.h"
#include "data/windowed_dataset.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Token i is i, so that a token tells its place.
class Counting final : public TokenSource {
 public:
  explicit Counting(std::int64_t tokens, std::uint64_t print = 0) : tokens_(tokens), print_(print) {}
  std::int64_t tokens() const override { return tokens_; }
  std::int64_t vocabulary() const override { return tokens_; }
  void read(std::int64_t first, std::span<std::int32_t> to) const override {
    LOCKSTEP_CHECK(first >= 0 && first + static_cast<std::int64_t>(to.size()) <= tokens_, "outside");
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::int32_t>(first) + static_cast<std::int32_t>(i);
  }
  std::uint64_t fingerprint() const override { return print_; }

 private:
  std::int64_t tokens_;
  std::uint64_t print_;
};

struct Sample {
  std::vector<std::int32_t> tokens, targets;
};
Sample sample_of(const Dataset& data, std::int64_t index) {
  const auto T = static_cast<std::size_t>(data.sequence());
  Sample s{std::vector<std::int32_t>(T), std::vector<std::int32_t>(T)};
  data.sample(index, s.tokens, s.targets);
  return s;
}

TEST(WindowedDataset, PredictsEveryTokenOnceButTheFirstAndTheRest) {
  for (const std::int64_t tokens : {5, 6, 8, 9, 10, 41}) {
    const Counting source(tokens);
    const WindowedDataset data(source, 4, 0, windows_in(tokens, 4));
    std::int32_t next = 1;
    for (std::int64_t i = 0; i < data.samples(); ++i) {
      const Sample s = sample_of(data, i);
      for (std::size_t t = 0; t < 4; ++t) {
        EXPECT_EQ(s.targets[t], next++);
        EXPECT_EQ(s.tokens[t], s.targets[t] - 1);
      }
    }
    EXPECT_GT(next + 4, tokens) << "less than a window is left over";
  }
}

TEST(WindowedDataset, GivesOnlyTheWindowsItWasGiven) {
  const Counting source(101);
  const WindowedDataset data(source, 10, 3, 2);
  EXPECT_EQ(data.samples(), 2);
  EXPECT_FALSE(data.endless());
  EXPECT_EQ(sample_of(data, 0).tokens[0], 30);
  EXPECT_EQ(sample_of(data, 1).targets[9], 50);
  EXPECT_THROW(sample_of(data, 2), ProgramError);
  EXPECT_THROW(sample_of(data, -1), ProgramError);
  EXPECT_THROW(WindowedDataset(source, 10, 9, 2), ProgramError);
  EXPECT_THROW(WindowedDataset(source, 10, 11, 0), ProgramError);
  EXPECT_THROW(WindowedDataset(source, 10, 1, std::numeric_limits<std::int64_t>::max()), ProgramError);
  std::vector<std::int32_t> nine(9), ten(10);
  EXPECT_THROW(data.sample(0, nine, ten), ProgramError);
  EXPECT_THROW(data.sample(0, ten, nine), ProgramError);
}

TEST(Split, TrainingNeverPredictsWhatEvaluationPredicts) {
  for (const std::int64_t T : {1, 3, 8}) {
    for (std::int64_t tokens = 2 * T + 1; tokens < 120; tokens += 7) {
      for (const double share : {1e-9, 0.05, 0.5, 0.999999}) {
        const Counting source(tokens);
        const WindowSplit split = split_windows("data", tokens, T, share);
        ASSERT_GE(split.train, 1);
        ASSERT_GE(split.eval, 1);
        ASSERT_EQ(split.train + split.eval, (tokens - 1) / T) << "and no window is lost";
        const WindowedDataset train(source, T, 0, split.train), eval(source, T, split.train, split.eval);
        std::set<std::int32_t> trained, read_by_training, evaluated;
        for (std::int64_t i = 0; i < train.samples(); ++i) {
          const Sample s = sample_of(train, i);
          trained.insert(s.targets.begin(), s.targets.end());
          read_by_training.insert(s.tokens.begin(), s.tokens.end());
        }
        for (std::int64_t i = 0; i < eval.samples(); ++i) {
          const Sample s = sample_of(eval, i);
          evaluated.insert(s.targets.begin(), s.targets.end());
        }
        for (const std::int32_t place : evaluated) {
          ASSERT_FALSE(trained.contains(place));
          ASSERT_FALSE(read_by_training.contains(place));
        }
      }
    }
  }
}

TEST(Split, GivesTheLastShareToEvaluation) {
  const WindowSplit split = split_windows("data", 1001, 10, 0.07);
  EXPECT_EQ(split.train, 93);
  EXPECT_EQ(split.eval, 7);
  EXPECT_EQ(split_windows("data", 101, 10, 0.01).eval, 1);  // at least one
  EXPECT_EQ(split_windows("data", 101, 10, 0.99).train, 1);
  const WindowSplit none = split_windows("data", 11, 10, 0);
  EXPECT_EQ(none.train, 1);
  EXPECT_EQ(none.eval, 0);
}

TEST(Split, SaysHowManyTokensAreNeeded) {
  const auto failure = [](std::int64_t tokens, std::int64_t T, double share, ExitCode code) {
    return user_error([&] { split_windows("my.txt", tokens, T, share); }, code);
  };
  EXPECT_THAT(failure(512, 256, 0.05, ExitCode::bad_input_file),
              HasSubstr("my.txt: 512 tokens are too few for seq = 256 with evaluation: 513 are needed"));
  EXPECT_EQ(failure(513, 256, 0.05, ExitCode::bad_input_file), "") << "and with so many it works";
  EXPECT_THAT(failure(256, 256, 0, ExitCode::bad_input_file), HasSubstr("seq = 256: 257 are needed"));
  EXPECT_EQ(failure(257, 256, 0, ExitCode::bad_input_file), "");
  EXPECT_THAT(failure(0, 256, 0, ExitCode::bad_input_file), HasSubstr("0 tokens"));
  EXPECT_THAT(failure(1000, 0, 0, ExitCode::usage), HasSubstr("seq = 0"));
  EXPECT_THAT(failure(1000, std::numeric_limits<std::int64_t>::max(), 0.1, ExitCode::usage), HasSubstr("seq = "));
  for (const double share : {-0.1, 1.0, 2.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(failure(1000, 10, share, ExitCode::usage), HasSubstr("evaluation share"));
  }
}

TEST(WindowedDataset, TheFingerprintKnowsContentLengthAndPart) {
  const Counting source(101, 1), other(101, 2);
  const std::set<std::uint64_t> prints = {
      WindowedDataset(source, 10, 0, 5).fingerprint(), WindowedDataset(other, 10, 0, 5).fingerprint(),
      WindowedDataset(source, 9, 0, 5).fingerprint(), WindowedDataset(source, 10, 1, 5).fingerprint(),
      WindowedDataset(source, 10, 0, 6).fingerprint()};
  EXPECT_EQ(prints.size(), 5u);
  EXPECT_TRUE(prints.contains(WindowedDataset(source, 10, 0, 5).fingerprint()));
}

TEST(SyntheticDataset, IsTheLanguagesSamplesShiftedByOne) {
  const SyntheticLanguage language({.vocabulary = 20, .order = 2, .branching = 3, .seed = 1});
  const SyntheticDataset data(language, 16, 100, 50);
  EXPECT_TRUE(data.endless());
  EXPECT_EQ(data.samples(), 50);
  EXPECT_EQ(data.vocabulary(), 20);
  std::vector<std::int32_t> whole(17);
  language.sample(107, whole);
  const Sample s = sample_of(data, 7);
  EXPECT_EQ(s.tokens, std::vector<std::int32_t>(whole.begin(), whole.end() - 1));
  EXPECT_EQ(s.targets, std::vector<std::int32_t>(whole.begin() + 1, whole.end()));
  EXPECT_THROW(sample_of(data, 50), ProgramError);
  EXPECT_THROW(SyntheticDataset(language, 16, std::numeric_limits<std::int64_t>::max(), 1), ProgramError);
}

TEST(SyntheticDataset, TrainingAndEvaluationNeverMeet) {
  const SyntheticLanguage language({.vocabulary = 64, .order = 1, .branching = 8, .seed = 1});
  const SyntheticDataset train(language, 32, 0, SyntheticDataset::kTrainSamples),
      eval(language, 32, SyntheticDataset::kEvalFirst, 1000);
  EXPECT_NE(train.fingerprint(), eval.fingerprint());
  EXPECT_NE(sample_of(train, 0).tokens, sample_of(eval, 0).tokens);
  EXPECT_NE(sample_of(train, train.samples() - 1).tokens, sample_of(eval, 0).tokens);
}

}  // namespace
}  // namespace lockstep
