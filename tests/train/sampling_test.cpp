// Picking a token: exactly the right ones may come, as often as they should, and always the same for the same seed and
// place.
#include "train/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::int32_t> kept(const std::vector<double>& logits, const Sampling& settings) {
  std::vector<Candidate> room;
  std::vector<std::int32_t> ids;
  for (const Candidate& c : candidates(logits, settings, room)) ids.push_back(c.id);
  return ids;
}

std::vector<std::int32_t> picks(const std::vector<double>& logits, const Sampling& settings, int count) {
  std::vector<Candidate> room;
  std::vector<std::int32_t> ids;
  for (int position = 0; position < count; ++position) ids.push_back(pick(logits, settings, position, room));
  return ids;
}

std::vector<double> logs(std::vector<double> probabilities) {
  for (double& p : probabilities) p = std::log(p) + 3;  // what all share changes nothing
  return probabilities;
}

template <class Call>
std::string refused(Call&& call, ExitCode code) {
  try {
    call();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "";
}

TEST(Sampling, TemperatureZeroIsTheLikeliestAndTheLowestIdOfEqualOnes) {
  EXPECT_THAT(kept({1, 5, -2, 5, 4.999}, {.temperature = 0}), ElementsAre(1));
  EXPECT_THAT(picks({1, 5, -2, 5.001, 4.999}, {.temperature = 0, .seed = 3}, 3), ElementsAre(3, 3, 3));
  EXPECT_THAT(kept({-kInfinity, -7}, {.temperature = 0, .top_k = 2, .top_p = 0.5}), ElementsAre(1));
}

TEST(Sampling, PicksAsOftenAsTheProbabilitiesSay) {
  const std::vector<double> logits{0.3, -1, 2, 0.3, -kInfinity, 1.1, -2.5, 0};
  constexpr int kPicks = 40000;
  for (const double temperature : {0.5, 1.0, 2.0})
    for (const std::uint64_t seed : {0, 1, 77}) {
      const Sampling settings{.temperature = temperature, .seed = seed};
      double total = 0;
      for (const double logit : logits) total += std::exp(logit / temperature);
      std::vector<int> counts(logits.size());
      for (const std::int32_t id : picks(logits, settings, kPicks)) ++counts[id];
      double chi_square = 0;
      for (std::size_t i = 0; i < logits.size(); ++i) {
        const double expected = kPicks * std::exp(logits[i] / temperature) / total;
        if (expected == 0)
          EXPECT_EQ(counts[i], 0);
        else
          chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
      }
      EXPECT_LT(chi_square, 22.46) << temperature << " " << seed;  // exceeded once in 1000 by chance, 6 degrees
    }
}

TEST(Sampling, ProbabilitiesOfWhatIsKeptSumToOne) {
  std::vector<Candidate> room;
  for (const Sampling& s : {Sampling{.temperature = 0.7}, Sampling{.top_k = 3}, Sampling{.top_p = 0.6}}) {
    double sum = 0;
    for (const Candidate& c : candidates(std::vector<double>{1, 2, 3, 4, 5}, s, room)) sum += c.probability;
    EXPECT_NEAR(sum, 1, 1e-15);
  }
  const auto two = candidates(logs({0.5, 0.3, 0.2}), {.temperature = 1, .top_k = 2}, room);
  EXPECT_NEAR(two[0].probability, 0.625, 1e-15);
}

TEST(Sampling, TopKKeepsExactlyTheLikeliestAndOfEqualOnesTheLowestIds) {
  EXPECT_THAT(kept({1, 9, 3, 7, 5}, {.top_k = 1}), ElementsAre(1));
  EXPECT_THAT(kept({1, 9, 3, 7, 5}, {.top_k = 3}), ElementsAre(1, 3, 4));
  EXPECT_THAT(kept({2, 2, 8, 2, 2}, {.top_k = 3}), ElementsAre(0, 1, 2));
  EXPECT_THAT(kept({2, 1}, {.top_k = 5}), ElementsAre(0, 1));
}

TEST(Sampling, TopPKeepsTheFewestWithThatShare) {
  const std::vector<double> logits = logs({0.05, 0.5, 0.1, 0.3, 0.05});
  const auto with = [&](double p) { return kept(logits, {.temperature = 1, .top_p = p}); };
  EXPECT_THAT(with(1e-9), ElementsAre(1));
  EXPECT_THAT(with(0.49), ElementsAre(1));
  EXPECT_THAT(with(0.51), ElementsAre(1, 3));
  EXPECT_THAT(with(0.79), ElementsAre(1, 3));
  EXPECT_THAT(with(0.81), ElementsAre(1, 2, 3));
  EXPECT_THAT(with(0.91), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(with(0.96), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(with(1), ElementsAre(0, 1, 2, 3, 4));
}

// Of four equal ones, two are exactly half.
TEST(Sampling, TopPThatIsReachedExactlyKeepsNoMore) {
  EXPECT_THAT(kept({0, 0, 0, 0}, {.temperature = 1, .top_p = 0.5}), ElementsAre(0, 1));
}

TEST(Sampling, TopPIsTheShareOfWhatTopKLeft) {
  // Of 0.5 and 0.3, the first has 0.625.
  const std::vector<double> logits = logs({0.05, 0.5, 0.1, 0.3, 0.05});
  EXPECT_THAT(kept(logits, {.temperature = 1, .top_k = 2, .top_p = 0.6}), ElementsAre(1));
  EXPECT_THAT(kept(logits, {.temperature = 1, .top_k = 2, .top_p = 0.64}), ElementsAre(1, 3));
}

TEST(Sampling, TopPIsTakenAfterTheTemperature) {
  const std::vector<double> logits = logs({0.6, 0.4});
  EXPECT_THAT(kept(logits, {.temperature = 1, .top_p = 0.65}), ElementsAre(0, 1));
  EXPECT_THAT(kept(logits, {.temperature = 0.5, .top_p = 0.65}), ElementsAre(0));  // 0.36 / (0.36 + 0.16) = 0.69
}

TEST(Sampling, AFilterThatKeepsEveryTokenChangesNothing) {
  const std::vector<double> logits{0.3, -1, 2, 0.3, 1.1, -2.5, 0};
  const auto plain = picks(logits, {.seed = 5}, 500);
  EXPECT_EQ(picks(logits, {.top_k = 7, .seed = 5}, 500), plain);
  EXPECT_EQ(picks(logits, {.top_k = 99, .seed = 5}, 500), plain);
  EXPECT_EQ(picks(logits, {.top_p = 1 - 1e-15, .seed = 5}, 500), plain);
}

// Where every probability rounds to the same, the logits still say which are likelier.
TEST(Sampling, AHighTemperatureKeepsTheOrder) {
  EXPECT_THAT(kept({1, 2, 3, 4}, {.temperature = 1e30, .top_k = 2}), ElementsAre(2, 3));
  EXPECT_THAT(kept({1, 2, 3, 4}, {.temperature = 1e-300}), ElementsAre(3));
}

TEST(Sampling, IsAFunctionOfSeedAndPosition) {
  const std::vector<double> logits(50, 0.0);
  const auto first = picks(logits, {.seed = 1}, 100);
  EXPECT_EQ(picks(logits, {.seed = 1}, 100), first);
  EXPECT_NE(picks(logits, {.seed = 2}, 100), first);
  std::vector<Candidate> room;
  EXPECT_EQ(pick(logits, {.seed = 1}, 63, room), first[63]);
  EXPECT_GT(std::set<std::int32_t>(first.begin(), first.end()).size(), 30u);
}

TEST(Sampling, BadLogitsAreNamed) {
  for (const double temperature : {0.0, 1.0}) {
    const auto with = [&](std::vector<double> logits) {
      return refused([&] { kept(logits, {.temperature = temperature}); }, ExitCode::check_failed);
    };
    EXPECT_THAT(with({1, kNan, 2}), HasSubstr("token id 1 is nan"));
    EXPECT_THAT(with({kNan, 1}), HasSubstr("token id 0 is nan"));
    EXPECT_THAT(with({1, 2, kInfinity}), HasSubstr("token id 2 is inf"));
    EXPECT_THAT(with({-kInfinity, -kInfinity}), HasSubstr("all of the model's logits are -inf"));
  }
}

TEST(Sampling, SettingsOutOfRangeAreNamed) {
  const auto with = [](const Sampling& s) { return refused([&] { validate(s); }, ExitCode::usage); };
  EXPECT_EQ(with({}), "");
  EXPECT_EQ(with({.temperature = 0, .top_k = 0, .top_p = 1}), "");
  for (const double bad : {-0.1, kNan, kInfinity}) EXPECT_THAT(with({.temperature = bad}), HasSubstr("temperature"));
  EXPECT_THAT(with({.top_k = -1}), HasSubstr("top-k of -1"));
  for (const double bad : {0.0, -1.0, 1.01, kNan}) EXPECT_THAT(with({.top_p = bad}), HasSubstr("top-p"));
}

}  // namespace
}  // namespace lockstep
