// The sampler: every epoch is a permutation, each of its own, and looks random.
#include "data/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "data/synthetic_dataset.h"

namespace lockstep {
namespace {

std::vector<std::int64_t> epoch(const Sampler& sampler, std::int64_t e) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < sampler.samples(); ++i) order.push_back(sampler.sample_of(e * sampler.samples() + i));
  return order;
}

TEST(Sampler, EveryEpochVisitsEverySampleOnce) {
  for (const std::int64_t N : {1, 2, 3, 4, 5, 7, 16, 17, 31, 64, 65, 101, 1000, 4096, 4097, 10007}) {
    const Sampler sampler(N, 12345);
    for (const std::int64_t e : {0, 1, 2, 1000000}) {
      std::vector<int> visits(static_cast<std::size_t>(N));
      for (const std::int64_t sample : epoch(sampler, e)) {
        ASSERT_TRUE(sample >= 0 && sample < N);
        ++visits[static_cast<std::size_t>(sample)];
      }
      EXPECT_EQ(visits, std::vector<int>(static_cast<std::size_t>(N), 1)) << "N=" << N << " epoch " << e;
    }
  }
}

TEST(Sampler, EpochsAndSeedsDiffer) {
  std::set<std::vector<std::int64_t>> orders;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Sampler sampler(50, seed);
    for (std::int64_t e = 0; e < 10; ++e) orders.insert(epoch(sampler, e));
  }
  EXPECT_EQ(orders.size(), 100u);
}

// 6 standard deviations of the chi-square distribution above its mean.
double limit(double freedom) { return freedom + 6 * std::sqrt(2 * freedom); }

TEST(Sampler, EverySampleComesAtEveryPlaceEquallyOften) {
  for (const std::int64_t N : {2, 3, 5, 7, 13, 20}) {
    constexpr int kEpochs = 20000;
    const Sampler sampler(N, 7);
    std::map<std::pair<std::int64_t, std::int64_t>, double> counts;
    for (std::int64_t n = 0; n < kEpochs * N; ++n) ++counts[{n % N, sampler.sample_of(n)}];
    const double expected = static_cast<double>(kEpochs) / static_cast<double>(N);
    double chi_square = 0;
    for (std::int64_t place = 0; place < N; ++place) {
      for (std::int64_t sample = 0; sample < N; ++sample) {
        chi_square += std::pow(counts[{place, sample}] - expected, 2) / expected;
      }
    }
    EXPECT_LT(chi_square, limit(static_cast<double>((N - 1) * (N - 1)))) << "N=" << N;
  }
}

TEST(Sampler, EveryOrderOfAFewSamplesIsEquallyLikely) {
  for (const auto& [N, orders] : {std::pair{2, 2}, std::pair{3, 6}, std::pair{4, 24}, std::pair{5, 120}}) {
    constexpr int kEpochs = 24000;
    const Sampler sampler(N, 99);
    std::map<std::vector<std::int64_t>, double> counts;
    for (int e = 0; e < kEpochs; ++e) ++counts[epoch(sampler, e)];
    ASSERT_EQ(counts.size(), static_cast<std::size_t>(orders));
    const double expected = static_cast<double>(kEpochs) / orders;
    double chi_square = 0;
    for (const auto& [order, count] : counts) chi_square += std::pow(count - expected, 2) / expected;
    EXPECT_LT(chi_square, limit(orders - 1)) << "N=" << N;
  }
}

TEST(Sampler, NeighboursHaveNothingInCommon) {
  constexpr std::int64_t kCount = 100003;
  const Sampler sampler(kCount, 5);
  double product = 0, distance = 0;
  const auto at = [&](std::int64_t n) { return static_cast<double>(sampler.sample_of(n)) / kCount - 0.5; };
  for (std::int64_t n = 0; n + 1 < kCount; ++n) {
    product += at(n) * at(n + 1);
    distance += std::abs(at(n) - at(n + 1));
  }
  // Correlation 0 with deviation 1/sqrt(N); mean distance 1/3 with deviation sqrt(1/18/N), more for the dependence.
  EXPECT_LT(std::abs(product / kCount * 12), 5 / std::sqrt(kCount));
  EXPECT_NEAR(distance / kCount, 1.0 / 3, 5 * 0.3 / std::sqrt(kCount));
}

TEST(Sampler, WorksFarBeyond32Bits) {
  for (const std::int64_t N : {(std::int64_t{1} << 31) + 1, (std::int64_t{1} << 40) - 87, std::int64_t{1} << 62}) {
    const Sampler sampler(N, 3);
    std::set<std::int64_t> seen;
    std::vector<double> buckets(16);
    constexpr int kDraws = 20000;
    for (std::int64_t n = 0; n < kDraws; ++n) {
      const std::int64_t sample = sampler.sample_of(n);
      ASSERT_TRUE(sample >= 0 && sample < N);
      seen.insert(sample);
      ++buckets[static_cast<std::size_t>(static_cast<double>(sample) / static_cast<double>(N) * 16)];
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(kDraws)) << "no sample twice within an epoch";
    double chi_square = 0;
    for (const double count : buckets) chi_square += std::pow(count - kDraws / 16.0, 2) / (kDraws / 16.0);
    EXPECT_LT(chi_square, limit(15)) << N;
    EXPECT_FALSE(seen.contains(sampler.sample_of(N - 1)));
    if (N < std::int64_t{1} << 60) {
      EXPECT_NE(sampler.sample_of(N), sampler.sample_of(0));
      EXPECT_NE(sampler.sample_of(N + 1), sampler.sample_of(1));
    }
  }
}

TEST(Sampler, EndlessDataIsReadInOrder) {
  const SyntheticLanguage language({.vocabulary = 4, .order = 1, .branching = 2, .seed = 1});
  const SyntheticDataset data(language, 8, 0, SyntheticDataset::kTrainSamples);
  const Sampler sampler(data, 17);
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{99999}, data.samples() - 1}) {
    EXPECT_EQ(sampler.sample_of(n), n);
  }
  EXPECT_EQ(sampler.sample_of(data.samples() + 3), 3);
}

// A run that resumes under a newer version goes on in the same order.
TEST(Sampler, TheOrderIsTheSameInEveryVersion) {
  EXPECT_EQ(epoch(Sampler(12, 1), 1), (std::vector<std::int64_t>{1, 5, 3, 0, 8, 10, 4, 7, 11, 9, 6, 2}));
}

TEST(Sampler, RefusesWhatHasNoMeaning) {
  EXPECT_THROW(Sampler(0, 1), ProgramError);
  EXPECT_THROW(Sampler(-5, 1), ProgramError);
  EXPECT_THROW(Sampler(5, 1).sample_of(-1), ProgramError);
}

}  // namespace
}  // namespace lockstep
