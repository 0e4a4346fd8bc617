// A run's batches: which sample of the file comes when, by a model of the order in plain loops, and what evaluation
// gets.
#include "train/run_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/philox.h"
#include "data/token_file_writer.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

using Order = std::vector<std::int64_t>;

// An epoch's order as data/sampler.h describes it: a permutation of all of [0, 4^h) by twelve rounds of a Feistel
// network, from which each number is followed until it is a sample; in half of the epochs samples 0 and 1 change
// places.
Order epoch_order(std::uint64_t seed, std::int64_t samples, std::uint64_t epoch) {
  const std::uint64_t key = random_key(random_key(seed, "data order"), "data/order");
  int half = 1;
  while ((std::int64_t{1} << (2 * half)) < samples) ++half;
  const std::uint64_t side = std::uint64_t{1} << half;
  Order next(static_cast<std::size_t>(side * side));
  for (std::uint64_t n = 0; n < side * side; ++n) {
    std::uint64_t left = n / side, right = n % side;
    for (std::uint64_t round = 0; round < 12; ++round) {
      const std::uint64_t mixed = left ^ (philox(key, right + (round << 32), epoch)[0] % side);
      left = right;
      right = mixed;
    }
    next[n] = static_cast<std::int64_t>(left * side + right);
  }
  const bool exchanged = philox(key, ~std::uint64_t{0}, epoch)[0] % 2 == 1;
  Order order;
  for (std::int64_t n = 0; n < samples; ++n) {
    std::int64_t at = next[n];
    while (at >= samples) at = next[at];
    order.push_back(at < 2 && exchanged ? 1 - at : at);
  }
  return order;
}

class DataOfARun : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSeq = 4, kWindows = 50, kHeld = 5, kTrained = kWindows - kHeld;

  DataOfARun() {
    std::vector<std::int32_t> tokens(kWindows * kSeq + 3);  // token i is i
    std::iota(tokens.begin(), tokens.end(), 0);
    TokenFileWriter writer(folder_ / "counting.tokens", 1000);
    writer.add(tokens);
    writer.finish();
  }
  RunSpec spec(std::uint64_t seed) const {
    RunSpec spec;
    spec.model.vocabulary = 1000;
    spec.data.tokens = folder_ / "counting.tokens";
    spec.data.seq = kSeq;
    spec.data.eval_share = 0.1;
    spec.train.seed = seed;
    return spec;
  }
  // The samples of a batch by their place in the file, every one whole and with the tokens that follow as targets.
  template <class Fill>
  static Order samples(std::int64_t count, Fill&& fill) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count * kSeq)), targets(tokens.size());
    fill(tokens, targets);
    Order order;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i % kSeq == 0) order.push_back(tokens[i] / kSeq);
      EXPECT_EQ(tokens[i], order.back() * kSeq + static_cast<std::int64_t>(i % kSeq));
      EXPECT_EQ(targets[i], tokens[i] + 1);
    }
    return order;
  }
  static Order trained(const RunData& data, std::int64_t first, std::int64_t count) {
    return samples(count, [&](auto& tokens, auto& targets) { data.training_batch(first, tokens, targets); });
  }
  static Order evaluated(const RunData& data, std::int64_t first, std::int64_t count) {
    return samples(count, [&](auto& tokens, auto& targets) { data.evaluation_batch(first, tokens, targets); });
  }
  TemporaryFolder folder_;
};

TEST_F(DataOfARun, ComeInTheOrderOfTheSeed) {
  std::set<Order> orders;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1} << 62}) {
    const RunData data(spec(seed));
    for (const std::int64_t epoch : {0, 1, 7}) {
      const Order order = trained(data, epoch * kTrained, kTrained);
      EXPECT_EQ(order, epoch_order(seed, kTrained, static_cast<std::uint64_t>(epoch))) << "seed " << seed;
      orders.insert(order);
    }
  }
  EXPECT_EQ(orders.size(), 12u) << "every seed and epoch has an order of its own";
}

TEST_F(DataOfARun, ABatchIsARunOfTheOrderWhereverItBegins) {
  const RunData data(spec(3));
  const Order all = trained(data, 0, 2 * kTrained);
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 7}, {7, 7}, {40, 11}, {89, 1}})
    EXPECT_EQ(trained(data, first, count), Order(all.begin() + first, all.begin() + first + count));
}

TEST_F(DataOfARun, EvaluationHasTheLastSamplesInTheirOrderWhateverTheSeed) {
  for (const std::uint64_t seed : {0, 9}) {
    const RunData data(spec(seed));
    ASSERT_TRUE(data.has_evaluation());
    EXPECT_EQ(evaluated(data, 0, 3), (Order{45, 46, 47}));
    EXPECT_EQ(evaluated(data, 3, 4), (Order{48, 49, 45, 46})) << "they start over";
    const Order order = trained(data, 0, kTrained);
    EXPECT_LT(*std::ranges::max_element(order), kTrained) << "and none of them is trained on";
  }
  RunSpec none = spec(0);
  none.data.eval_share = 0;
  EXPECT_FALSE(RunData(none).has_evaluation());
}

// Every document is trained on in each epoch or evaluated, none both; the index is kept beside the file.
TEST_F(DataOfARun, DocumentsForEvaluationAreNeverTrainedOn) {
  constexpr std::int64_t kT = 16, kDocuments = 60, kEach = 7;
  TokenFileWriter writer(folder_ / "documents.tokens", 1000);
  for (std::int32_t d = 0; d < kDocuments; ++d) writer.add(std::vector<std::int32_t>(kEach, d));
  writer.finish();
  for (const Documents documents : {Documents::packed, Documents::nosplit, Documents::varlen}) {
    RunSpec run = spec(3);
    run.data.tokens = folder_ / "documents.tokens";
    run.data.seq = kT;
    run.data.documents = documents;
    const RunData data(run), again(run);
    EXPECT_TRUE(std::filesystem::exists(fmt::format("{}.{}-16-0.1.index", run.data.tokens, name_of(documents))));
    const auto times = [&](const RunData& of, std::int64_t first, std::int64_t samples, bool evaluates) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(samples * kT)), targets(tokens.size());
      evaluates ? of.evaluation_batch(first, tokens, targets) : of.training_batch(first, tokens, targets);
      std::map<std::int32_t, int> all;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::int32_t token = tokens[i] == kPadding ? 0 : tokens[i] & ~kBeginsDocument;
        if (token > 0) ++all[token];  // 0 is padding too
      }
      return all;
    };
    const std::int64_t samples = data.training_samples();
    const auto trained = times(data, 0, samples, false);
    EXPECT_EQ(times(data, 2 * samples, samples, false), trained) << "another epoch";
    EXPECT_EQ(times(again, 5, 4, false), times(data, 5, 4, false));
    const auto evaluated = times(data, 0, 4, true);
    EXPECT_EQ(trained.size() + evaluated.size(), kDocuments - 1);
    for (const auto& [document, count] : trained) {
      EXPECT_EQ(count, kEach) << document;
      EXPECT_FALSE(evaluated.contains(document)) << document;
      EXPECT_LT(document, evaluated.begin()->first);
    }
    EXPECT_EQ(data.sample_work().tokens, (kDocuments - 6) * static_cast<double>(kEach) / static_cast<double>(samples));
  }
}

TEST_F(DataOfARun, OfALanguageComeInOrder) {
  RunSpec spec;
  spec.model.vocabulary = 100;
  spec.data.synthetic = SyntheticSpec{.vocabulary = 100, .order = 1, .branching = 20, .seed = 4};
  spec.data.seq = kSeq;
  spec.train.global_batch = 2;
  spec.train.eval_batches = 3;
  const auto batch = [&](const RunData& data, std::int64_t first, bool evaluates) {
    std::vector<std::int32_t> tokens(2 * kSeq), targets(2 * kSeq);
    evaluates ? data.evaluation_batch(first, tokens, targets) : data.training_batch(first, tokens, targets);
    tokens.insert(tokens.end(), targets.begin(), targets.end());
    return tokens;
  };
  const auto expected = [&](std::int64_t first) {
    const SyntheticLanguage language(*spec.data.synthetic);
    std::vector<std::int32_t> tokens, targets;
    for (std::int64_t i = 0; i < 2; ++i) {
      std::vector<std::int32_t> all(kSeq + 1);
      language.sample(first + i, all);
      tokens.insert(tokens.end(), all.begin(), all.end() - 1);
      targets.insert(targets.end(), all.begin() + 1, all.end());
    }
    tokens.insert(tokens.end(), targets.begin(), targets.end());
    return tokens;
  };
  for (const std::uint64_t seed : {0, 1}) {
    spec.train.seed = seed;
    const RunData data(spec);
    EXPECT_EQ(batch(data, 6, false), expected(6));
    EXPECT_EQ(batch(data, 2, true), expected((std::int64_t{1} << 40) + 2));
    EXPECT_EQ(batch(data, 6, true), expected(std::int64_t{1} << 40)) << "six are held back";
  }
}

}  // namespace
}  // namespace lockstep::tests
