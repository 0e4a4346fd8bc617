// Which source the n-th sample is from: shares in every prefix, each source's samples in order, the ends of epochs.
#include "data/mixture.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "data/temp_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

MixedSource source(double weight, double epochs = 0, std::int64_t samples = 100) {
  MixedSource one{.samples = samples, .epochs = epochs};
  one.weight.steps[0].weight = weight;
  return one;
}

// The plain model: a walk over all samples, counting.
struct Walk {
  std::vector<std::size_t> sources;
  std::vector<std::int64_t> counts;
};
Walk walk(const Mixture& mixture, std::size_t sources, std::int64_t n) {
  Walk walk{{}, std::vector<std::int64_t>(sources)};
  for (std::int64_t i = 0; i < n; ++i) {
    const MixturePlace place = mixture.place_of(i);
    EXPECT_EQ(place.index, walk.counts[place.source]) << "sample " << i << " is not the next of its source";
    ++walk.counts[place.source];
    walk.sources.push_back(place.source);
  }
  return walk;
}

TEST(Mixture, SharesHoldInEveryPrefixWithinOneSample) {
  const std::vector<std::vector<double>> all = {{1},
                                                {0.7, 0.3},
                                                {0.7, 0.2, 0.1},
                                                {1, 1, 1},
                                                {5, 0, 3, 1},
                                                {0.001, 0.999},
                                                {3.14159, 2.71828, 1.41421},
                                                {1e-3, 1, 7, 30, 2.5, 0.01},
                                                {50, 49, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
  for (const std::vector<double>& weights : all) {
    std::vector<MixedSource> sources;
    for (const double weight : weights) sources.push_back(source(weight));
    const Mixture mixture(sources);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<std::int64_t> counts(weights.size());
    double most = 0;
    for (std::int64_t n = 0; n < 200'000; ++n) {
      ++counts[mixture.place_of(n).source];
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const double share = static_cast<double>(n + 1) * weights[i] / sum;
        // What is not a ratio of small numbers is rounded to 65,536ths.
        const double rounding = static_cast<double>(n + 1) / 65536;
        most = std::max(most, std::fabs(static_cast<double>(counts[i]) - share) - rounding);
      }
    }
    EXPECT_LT(most, 1) << weights.size() << " sources, the first of " << weights[0];
  }
}

TEST(Mixture, RatiosOfWholeNumbersAreHeldExactly) {
  const std::vector<double> weights{0.7, 0.2, 0.1};
  EXPECT_THAT(whole_shares(weights, Mixture::kLongestPeriod), ElementsAre(7, 2, 1));
  const std::vector<double> thirds{1.0 / 3, 1.0 / 3, 1.0 / 3};
  EXPECT_THAT(whole_shares(thirds, Mixture::kLongestPeriod), ElementsAre(1, 1, 1));
  std::vector<MixedSource> sources;
  for (const double weight : weights) sources.push_back(source(weight));
  const Mixture mixture(sources);
  EXPECT_EQ(mixture.count(0, 1'000'000'000'000), 700'000'000'000) << "also far away, and at once";
  EXPECT_EQ(mixture.place_of(1'000'000'000'000).index,
            mixture.count(mixture.place_of(1'000'000'000'000).source, 1'000'000'000'000));
  for (const std::vector<double>& odd :
       {std::vector<double>{std::sqrt(2.0), std::exp(1.0)}, std::vector<double>(199, 1.0 / 7)}) {
    const std::vector<std::int64_t> q = whole_shares(odd, Mixture::kLongestPeriod);
    EXPECT_LE(std::accumulate(q.begin(), q.end(), std::int64_t{0}), Mixture::kLongestPeriod);
  }
}

TEST(Mixture, EverySourceGivesItsSamplesOneAfterAnother) {
  const std::vector<MixedSource> sources{source(2), source(0), source(1), source(0.3)};
  const Walk taken = walk(Mixture(sources), 4, 10'000);
  EXPECT_EQ(taken.counts[1], 0) << "a weight of 0 is none";
}

TEST(Mixture, WeightsChangeAtTheirSamples) {
  std::vector<MixedSource> sources{source(1), source(1)};
  sources[0].weight = *WeightSteps::parse("1, 0@100, 3@200");
  const Mixture mixture(sources);
  const Walk taken = walk(mixture, 2, 1000);
  const auto first_in = [&](std::int64_t from, std::int64_t to) {
    return std::count(taken.sources.begin() + from, taken.sources.begin() + to, 0u);
  };
  EXPECT_EQ(first_in(0, 100), 50);
  EXPECT_EQ(first_in(100, 200), 0);
  EXPECT_EQ(first_in(200, 1000), 600);
  for (const std::int64_t n : {0, 1, 99, 100, 150, 200, 999, 1000}) EXPECT_EQ(mixture.count(0, n), first_in(0, n)) << n;
}

TEST(Mixture, ASourceEndsAfterItsEpochsAndTheOthersTakeItsShare) {
  const std::vector<MixedSource> sources{source(6, 1.5, 10), source(3), source(1)};
  const Mixture mixture(sources);
  EXPECT_EQ(mixture.samples(), Mixture::kUnlimited);
  const Walk taken = walk(mixture, 3, 1000);
  EXPECT_EQ(taken.counts[0], 15);
  const auto last = std::find(taken.sources.rbegin(), taken.sources.rend(), 0u);
  const auto rest = taken.sources.rend() - last;  // samples up to its last
  EXPECT_NEAR(static_cast<double>(rest), 25, 1);
  const double left = static_cast<double>(1000 - rest);
  const auto of_second = std::count(taken.sources.begin() + rest, taken.sources.end(), 1u);
  EXPECT_NEAR(static_cast<double>(of_second), left * 0.75, 1);
}

TEST(Mixture, EndsWhenAllSourcesHaveGivenTheirEpochs) {
  const std::vector<MixedSource> sources{source(1, 2, 10), source(1, 1, 7), source(5, 0.5, 6)};
  const Mixture mixture(sources);
  EXPECT_EQ(mixture.samples(), 30);
  EXPECT_THAT(walk(mixture, 3, 30).counts, ElementsAre(20, 7, 3));
  EXPECT_THROW(mixture.place_of(30), ProgramError);
  const std::vector<MixedSource> tiny{source(1, 0.01, 10)};
  EXPECT_EQ(Mixture(tiny).samples(), 1) << "at least one sample";
}

TEST(Mixture, RefusesWhatItCannotHold) {
  const std::vector<MixedSource> unequal{source(1), source(1e-7)};
  EXPECT_THAT(user_error([&] { Mixture mixture(unequal); }, ExitCode::usage),
              HasSubstr("share of the samples is 1e-07"));
  std::vector<MixedSource> many;
  for (int i = 0; i < 4; ++i) {
    std::string text = "1";
    for (int k = 1; k < 100; ++k) text += fmt::format(", {}@{}", k % 3 + 1, 4 * k + i);
    many.push_back(source(1));
    many.back().weight = *WeightSteps::parse(text);
  }
  EXPECT_THAT(user_error([&] { Mixture mixture(many); }, ExitCode::usage), HasSubstr("change more than 256 times"));
}

TEST(WeightSteps, AreReadAndWritten) {
  for (const char* text : {"0.7", "0", "1e-05", "0.7, 0.3@10000", "0, 1@5, 0@6, 123456789@7"})
    EXPECT_EQ(WeightSteps::parse(text)->text(), text);
  EXPECT_EQ(WeightSteps::parse(" 1 ,2@3 ")->text(), "1, 2@3");
  for (const char* text : {"", "x", "-1", "1,", ",1", "1@5", "1, 2", "1, 2@0", "1, 2@5, 3@5", "1, 2@-5", "nan", "inf",
                           "1e10", "1, 2@3@4", "1, 2@9999999999999999999", "1 2"})
    EXPECT_FALSE(WeightSteps::parse(text)) << text;
  EXPECT_EQ(WeightSteps::parse("1, 2@10")->at(9), 1);
  EXPECT_EQ(WeightSteps::parse("1, 2@10")->at(10), 2);
}

}  // namespace
}  // namespace lockstep
