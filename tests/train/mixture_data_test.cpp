// The data of a run with several sources: shares by tokens and by documents, each source's samples once per epoch, what
// evaluation gets, and that the n-th sample is the same wherever a batch begins.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "base/error.h"
#include "data/token_file_writer.h"
#include "support/program.h"
#include "train/run_data.h"

namespace lockstep::tests {
namespace {

using testing::HasSubstr;

class MixtureOfARun : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSeq = 4;

  // A file whose token i is 100·mark + i % 100, in documents of this length.
  SourceSpec source(const std::string& name, int mark, std::int64_t windows, double weight, std::int64_t document) {
    TokenFileWriter writer(folder_ / name, 1000);
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i <= windows * kSeq; ++i) {
      tokens.push_back(static_cast<std::int32_t>(100 * mark + i / kSeq % 100));
      if (std::ssize(tokens) == document) writer.add(tokens), tokens.clear();
    }
    writer.add(tokens);
    writer.finish();
    SourceSpec spec{.name = name, .text = {}, .tokens = folder_ / name, .weight = {}, .eval_share = 0};
    spec.weight.steps[0].weight = weight;
    return spec;
  }
  RunSpec mixed(std::vector<SourceSpec> sources) const {
    RunSpec spec;
    spec.model.vocabulary = 1000;
    spec.data.seq = kSeq;
    spec.data.eval_share = 0;
    spec.data.sources = std::move(sources);
    spec.train.steps = 10;
    spec.train.global_batch = 4;
    return spec;
  }
  static RunSpec mixed_as(RunSpec spec, SourceSpec one) {
    spec.data.sources = {std::move(one)};
    return spec;
  }
  // The marks and windows of so many samples.
  static std::vector<std::pair<int, int>> samples(const RunData& data, std::int64_t first, std::int64_t count,
                                                  bool evaluation = false) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count * kSeq)), targets(tokens.size());
    evaluation ? data.evaluation_batch(first, tokens, targets) : data.training_batch(first, tokens, targets);
    std::vector<std::pair<int, int>> all;
    for (std::size_t i = 0; i < tokens.size(); i += kSeq) all.emplace_back(tokens[i] / 100, tokens[i] % 100);
    return all;
  }
  TemporaryFolder folder_;
};

TEST_F(MixtureOfARun, HasItsSharesAndEachSourcesSamplesOncePerEpoch) {
  const RunData data(mixed({source("a", 1, 30, 0.5, 50), source("b", 2, 7, 0.3, 50), source("c", 3, 20, 0.2, 50)}));
  const auto all = samples(data, 0, 3000);
  std::map<int, std::vector<int>> of;
  const std::map<int, double> share{{1, 0.5}, {2, 0.3}, {3, 0.2}};
  for (std::size_t n = 0; n < all.size(); ++n) {
    of[all[n].first].push_back(all[n].second);
    for (const auto& [mark, part] : share)
      ASSERT_LT(std::fabs(static_cast<double>(of[mark].size()) - part * static_cast<double>(n + 1)), 1) << n;
  }
  const std::map<int, std::size_t> windows{{1, 30}, {2, 7}, {3, 20}};
  std::set<std::vector<int>> orders;
  for (const auto& [mark, count] : windows)
    for (std::size_t at = 0; at + count <= of[mark].size(); at += count) {
      const std::vector<int> epoch(of[mark].begin() + static_cast<std::ptrdiff_t>(at),
                                   of[mark].begin() + static_cast<std::ptrdiff_t>(at + count));
      EXPECT_EQ(std::set<int>(epoch.begin(), epoch.end()).size(), count) << "a sample of " << mark << " came twice";
      if (mark == 1) orders.insert(epoch);
    }
  EXPECT_GT(orders.size(), 40u) << "every epoch has an order of its own";
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 7}, {7, 13}, {999, 1}, {2000, 900}})
    EXPECT_EQ(samples(data, first, count), (std::vector(all.begin() + first, all.begin() + first + count)));
}

TEST_F(MixtureOfARun, ASourceMoreLeavesTheOrdersOfTheOthers) {
  const SourceSpec a = source("a", 1, 30, 1, 50), b = source("b", 2, 7, 1, 50);
  const auto of_a = [&](const RunSpec& spec) {
    std::vector<int> windows;
    for (const auto& [mark, window] : samples(RunData(spec), 0, 60))
      if (mark == 1 && windows.size() < 30) windows.push_back(window);
    return windows;
  };
  EXPECT_EQ(of_a(mixed({a})), of_a(mixed({a, b})));
}

TEST_F(MixtureOfARun, WeightsOfDocumentsAreSharesOfDocuments) {
  // Documents of 8 and of 40 tokens, as many of each: five times as many tokens of the longer ones.
  RunSpec spec = mixed({source("a", 1, 100, 1, 8), source("b", 2, 100, 1, 40)});
  spec.data.weigh_by = WeighBy::documents;
  std::map<int, int> count;
  for (const auto& [mark, window] : samples(RunData(spec), 0, 600)) ++count[mark];
  // The last document of each file is cut: 401 tokens in 51 and in 11 documents.
  const double lengths[] = {401.0 / 51, 401.0 / 11};
  EXPECT_NEAR(count[1], 600 * lengths[0] / (lengths[0] + lengths[1]), 1.1);
  SourceSpec raw = spec.data.sources[0];
  raw.token_type = TokenType::u16;
  raw.tokens = folder_ / "raw";
  std::ofstream(raw.tokens) << std::string(200, '\1');
  spec.data.sources[0] = raw;
  spec.model.vocabulary = 70'000;
  EXPECT_THROW(RunData data(spec), UserError) << "nobody knows how many documents are in it";
}

// Documents of 2 tokens and of 4, samples of 4: two of a sample, or one.
TEST_F(MixtureOfARun, SamplesOfDocumentsAreOfOneSourceAndCountAsTheirSharesDo) {
  RunSpec spec = mixed({source("a", 1, 50, 0.25, 2), source("b", 2, 50, 0.75, 4)});
  spec.data.documents = Documents::packed;
  const RunData data(spec);
  std::vector<std::int32_t> tokens(400 * kSeq), targets(tokens.size());
  data.training_batch(0, tokens, targets);
  std::map<int, int> count;
  for (std::size_t i = 0; i < tokens.size(); i += kSeq) {
    const int mark = (tokens[i] & ~kBeginsDocument) / 100;
    ++count[mark];
    EXPECT_TRUE(tokens[i] & kBeginsDocument);
    const bool padded = tokens[i + 3] == kBeginsDocument;  // the one token that is left over at the end
    if (mark == 2 && !padded) {
      EXPECT_FALSE(tokens[i + 2] & kBeginsDocument) << i;
    }
  }
  EXPECT_NEAR(count[1], 100, 1);
  EXPECT_NEAR(count[2], 300, 1);
  // Of each source alone, and of both by what the run takes of them: 10 of its 40 samples are of the first.
  const auto work_of = [&](const SourceSpec& one) { return RunData(mixed_as(spec, one)).sample_work(); };
  const SampleWork first = work_of(spec.data.sources[0]), second = work_of(spec.data.sources[1]),
                   both = data.sample_work();
  EXPECT_LT(first.squares, second.squares);
  EXPECT_NEAR(both.squares, 0.25 * first.squares + 0.75 * second.squares, 1e-9);
  EXPECT_NEAR(both.tokens, 0.25 * first.tokens + 0.75 * second.tokens, 1e-9);
  EXPECT_NEAR(data.documents()->all_pairs(),
              0.25 * RunData(mixed_as(spec, spec.data.sources[0])).documents()->all_pairs() +
                  0.75 * RunData(mixed_as(spec, spec.data.sources[1])).documents()->all_pairs(),
              1e-9);
}

TEST_F(MixtureOfARun, EvaluationHasItsShareOfEverySourceAndNoneOfItIsTrainedOn) {
  RunSpec spec = mixed({source("a", 1, 40, 3, 50), source("b", 2, 40, 1, 50), source("c", 3, 40, 1, 50)});
  spec.data.sources[0].eval_share = 0.25;
  spec.data.sources[0].weight = *WeightSteps::parse("0, 3@4");
  spec.data.sources[1].eval_share = 0.1;
  const RunData data(spec);
  ASSERT_TRUE(data.has_evaluation());
  std::set<std::pair<int, int>> held;
  std::map<int, int> count;
  for (const auto& sample : samples(data, 0, 40, true)) held.insert(sample), ++count[sample.first];
  EXPECT_EQ(count[1], 30);
  EXPECT_EQ(count[2], 10);
  EXPECT_EQ(held.size(), 14u) << "ten and four windows, from the beginning again";
  for (const auto& sample : samples(data, 0, 1000)) EXPECT_FALSE(held.contains(sample));
  const std::vector<SourceUse> uses = data.uses(1000);
  ASSERT_EQ(uses.size(), 3u);
  EXPECT_EQ(uses[0].evaluation, 10);
  EXPECT_EQ(uses[0].samples, 30);
  EXPECT_EQ(uses[0].used + uses[1].used + uses[2].used, 1000);
}

TEST_F(MixtureOfARun, EpochsAreALimitThatTheRunMustKeep) {
  RunSpec spec = mixed({source("a", 1, 10, 1, 50), source("b", 2, 15, 1, 50)});
  spec.data.sources[0].epochs = 2;
  spec.data.sources[1].epochs = 1.4;  // 21 samples
  EXPECT_EQ(samples(RunData(spec), 0, 40).size(), 40u);
  spec.train.steps = 11;
  try {
    RunData data(spec);
    ADD_FAILURE() << "41 samples are not enough";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the sources have 41 samples in their epochs, and 11 steps of 4 need 44; use "
                                        "train.steps=10 or fewer"));
  }
  spec.data.sources[1].epochs = 0;
  EXPECT_EQ(RunData(spec).uses(1000)[0].used, 20) << "and then the other source takes its share";
}

TEST_F(MixtureOfARun, AnotherSourceHasAnotherFingerprint) {
  const SourceSpec a = source("a", 1, 30, 1, 50), b = source("b", 2, 30, 1, 50), c = source("c", 3, 30, 1, 50);
  const auto print = [&](const std::vector<SourceSpec>& sources) { return RunData(mixed(sources)).fingerprint(); };
  EXPECT_NE(print({a, b}), print({a, c}));
  EXPECT_NE(print({a, b}), print({b, a}));
  EXPECT_EQ(print({a, b}), print({a, b}));
}

}  // namespace
}  // namespace lockstep::tests
