// Curves of a machine file, from times: the ones that times were made of are found again, noise or not.
#include "bench/efficiency_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace lockstep::tests {
namespace {

constexpr double kPeak = 1e11;

std::vector<ProductTiming> timings_of(const MachineSpec::Products& curve, double noise) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<ProductTiming> all;
  for (const std::int64_t s : {32, 64, 192})
    for (const ProductTiming& p : {ProductTiming{s, 384, 384}, {384, s, 384}, {384, 384, s}}) all.push_back(p);
  for (const std::int64_t s : {64, 128, 384, 1024}) all.push_back({s, s, s});
  for (ProductTiming& p : all)
    p.seconds = p.flops() / kPeak /
                curve.share(static_cast<double>(p.m), static_cast<double>(p.n), static_cast<double>(p.k)) *
                std::exp(noise * normal(random));
  return all;
}

TEST(EfficiencyFit, FindsTheCurveThatTimesWereMadeOf) {
  for (const MachineSpec::Products& curve :
       {MachineSpec::Products{.best = 0.9, .half_m = 8, .half_n = 30, .half_k = 60},
        {.best = 1.1, .half_k = 100},
        {}}) {
    const MachineSpec::Products found = fit_products(timings_of(curve, 0), kPeak);
    EXPECT_NEAR(found.best, curve.best, 0.03 * curve.best);
    EXPECT_NEAR(found.half_m, curve.half_m, 0.1 * curve.half_m + 0.5);
    EXPECT_NEAR(found.half_n, curve.half_n, 0.1 * curve.half_n + 0.5);
    EXPECT_NEAR(found.half_k, curve.half_k, 0.1 * curve.half_k + 0.5);
  }
}

TEST(EfficiencyFit, NoiseOfFivePercentLeavesPredictionsWithinFifteen) {
  const MachineSpec::Products curve{.best = 0.9, .half_m = 8, .half_n = 30, .half_k = 60};
  const MachineSpec::Products found = fit_products(timings_of(curve, 0.05), kPeak);
  for (const double s : {16, 100, 1000})
    for (const double k : {32, 300, 2000}) EXPECT_NEAR(found.share(s, 384, k) / curve.share(s, 384, k), 1, 0.15);
}

TEST(EfficiencyFit, FindsTheLengthAtWhichAttentionReachesHalf) {
  std::vector<AttentionTiming> timings;
  for (const std::int64_t tokens : {64, 256, 1024}) {
    AttentionTiming t{.tokens = tokens, .forward_flops = 4e9, .backward_flops = 1e10};
    const double reached = static_cast<double>(tokens) / static_cast<double>(tokens + 100);
    t.forward = t.forward_flops / (kPeak * 0.6 * reached);
    t.backward = t.backward_flops / (kPeak * 0.5 * reached);
    timings.push_back(t);
  }
  const MachineSpec::Attention found = fit_attention(timings, kPeak);
  EXPECT_NEAR(found.forward, 0.6, 0.02);
  EXPECT_NEAR(found.backward, 0.5, 0.02);
  EXPECT_NEAR(found.half_pairs, 100, 8);
}

TEST(EfficiencyFit, CopiesAreInterpolatedByTheLogarithmOfTheirSize) {
  MachineSpec m;
  m.copies = {{.size = 1024, .rate = 8e9}, {.size = 1024 * 1024, .rate = 2e9}};
  EXPECT_EQ(m.rate_of_copy(1), 8e9);
  EXPECT_EQ(m.rate_of_copy(1024), 8e9);
  EXPECT_DOUBLE_EQ(m.rate_of_copy(32768), 5e9);
  EXPECT_EQ(m.rate_of_copy(1024 * 1024), 2e9);
  EXPECT_EQ(m.rate_of_copy(1e12), 2e9);
}

}  // namespace
}  // namespace lockstep::tests
