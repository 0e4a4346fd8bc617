// The mean of clocks that differ: what is stated as its error is never passed, and is not idle.
#include "telemetry/clock_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace lockstep::tests {
namespace {

// Clocks that show (1 + drift) t + offset, and messages that take any time each way.
struct FakeClocks {
  explicit FakeClocks(unsigned seed, double most_drift = 500e-6) : random(seed) {
    const int count = 2 + static_cast<int>(random() % 7);
    for (int i = 0; i < count; ++i) {
      offsets.push_back(uniform(-3600, 3600));
      drifts.push_back(seed % 3 == 0 ? (random() % 2 ? 1 : -1) * most_drift : uniform(-most_drift, most_drift));
    }
    base = std::pow(10, uniform(-6, -2));
    estimates.resize(offsets.size());
  }
  double uniform(double least, double most) { return std::uniform_real_distribution(least, most)(random); }
  // One way: as fast as can be, or held up a hundredfold.
  double delay() { return base * std::pow(10, uniform(-2, 2)); }
  double clock(std::size_t i, double t) const { return t + drifts[i] * t + offsets[i]; }
  double mean(double t) const {
    double sum = 0;
    for (std::size_t i = 0; i < offsets.size(); ++i) sum += clock(i, t);
    return sum / static_cast<double>(offsets.size());
  }
  // One after the other, from `t` on; when it is over.
  double compare(double t) {
    fastest = 0;
    for (std::size_t i = 1; i < offsets.size(); ++i) {
      std::vector<RoundTrip> trips;
      for (int k = 0; k < 8; ++k) {
        RoundTrip& trip = trips.emplace_back();
        trip.sent = clock(0, t);
        t += delay();
        trip.theirs = clock(i, t);
        t += delay();
        trip.received = clock(0, t);
      }
      double own = trips[0].received - trips[0].sent;
      for (const RoundTrip& trip : trips) own = std::min(own, trip.received - trip.sent);
      fastest = std::max(fastest, own);
      estimates[i].compare(trips);
    }
    std::vector<ClockLine> lines;
    for (const ClockEstimate& estimate : estimates) lines.push_back(estimate.line());
    clocks = mean_clocks(lines);
    return t;
  }
  double true_error(std::size_t i, double t) const { return clocks[i].reading_of_mean(clock(i, t)) - mean(t); }

  std::mt19937 random;
  std::vector<double> offsets, drifts;
  double base = 0, fastest = 0;  // the slowest clock's fastest round trip
  std::vector<ClockEstimate> estimates;
  std::vector<MeanClock> clocks;
};

TEST(ClockEstimate, IsWithinItsStatedErrorInEveryCase) {
  double nearest = 0;  // to the bound
  for (unsigned seed = 0; seed < 2000; ++seed) {
    FakeClocks fake(seed);
    double t = fake.uniform(0, 1000);
    for (int comparison = 0; comparison < 4; ++comparison) {
      const double began = t;
      t = fake.compare(t);
      for (const double later : {0.0, fake.uniform(0, 1), fake.uniform(0, 1000), began - t})
        for (std::size_t i = 0; i < fake.clocks.size(); ++i) {
          const double stated = fake.clocks[i].error(fake.clock(i, t + later));
          const double error = std::abs(fake.true_error(i, t + later));
          ASSERT_LE(error, stated) << "seed " << seed << ", clock " << i << " of " << fake.clocks.size() << ", "
                                   << comparison << " comparisons before, " << later << " s later";
          nearest = std::max(nearest, error / stated);
        }
      t += std::pow(10, fake.uniform(-2, 3));
    }
  }
  EXPECT_GT(nearest, 0.5) << "a bound that nothing comes near is too large";
}

TEST(ClockEstimate, StatesNoMoreThanARoundTripAfterAComparison) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    FakeClocks fake(seed);
    const double t = fake.compare(10);
    // What grows during the comparison itself, one clock after the other, is drift.
    const double grown = 2 * kMostRelativeDrift * (t - 10);
    for (std::size_t i = 0; i < fake.clocks.size(); ++i)
      ASSERT_LE(fake.clocks[i].error(fake.clock(i, t)), 1.01 * fake.fastest + grown + 1e-10) << seed;
  }
}

TEST(ClockEstimate, LearnsTheDriftFromASecondComparison) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    FakeClocks fake(seed);
    fake.compare(10);
    const double t = fake.compare(1010);
    double mean = 0;
    for (const double drift : fake.drifts) mean += drift / static_cast<double>(fake.drifts.size());
    for (std::size_t i = 0; i < fake.clocks.size(); ++i) {
      const double residual = fake.clocks[i].own.residual + fake.clocks[i].mean.residual;
      EXPECT_NEAR(fake.clocks[i].drift(), mean - fake.drifts[i], residual + 1e-6) << seed;
      EXPECT_LE(residual, 4 * (fake.base * 0.2 + kDriftWander) + fake.fastest / 100) << seed;
      // A minute later the error is what it was, and the minute times the little that is not known.
      EXPECT_LE(fake.clocks[i].error(fake.clock(i, t + 60)),
                1.5 * fake.clocks[i].error(fake.clock(i, t)) + 61 * residual)
          << seed;
    }
  }
}

TEST(ClockEstimate, GrowsWithTheTimeSinceTheComparison) {
  FakeClocks fake(7);
  const double t = fake.compare(10);
  const auto stated = [&](double later) { return fake.clocks[1].error(fake.clock(1, t + later)); };
  EXPECT_GT(stated(10), stated(1));
  EXPECT_GT(stated(1), stated(0));
}

// A clock whose drift changes breaks what the bound rests on; it is noticed, and the bound holds again.
TEST(ClockEstimate, StartsAnewWhenAClockHasWandered) {
  const auto trip = [](double reference, double theirs) { return RoundTrip{reference, theirs, reference + 2e-6}; };
  ClockEstimate estimate;
  for (const double s : {0.0, 100.0, 200.0}) estimate.compare(std::vector{trip(s, s + 1e-6 + 50e-6 * s)});
  EXPECT_NEAR(estimate.line().drift, 50e-6, 1e-6);
  const double offset = 50e-6 * 200;  // from then on 30 ppm slower
  for (const double s : {300.0, 400.0}) estimate.compare(std::vector{trip(s, s + 1e-6 + offset + 20e-6 * (s - 200))});
  EXPECT_NEAR(estimate.line().drift, 20e-6, 1e-6);
  EXPECT_LE(estimate.line().residual, 3e-6);
  EXPECT_NEAR(estimate.line().offset_at(500), offset + 20e-6 * 300, estimate.line().error_at(500));
}

TEST(ClockEstimate, OfOneClockIsItself) {
  const MeanClock alone = mean_clocks(std::vector<ClockLine>(1))[0];
  EXPECT_EQ(alone.reading_of_mean(1234.5), 1234.5);
  EXPECT_LT(alone.error(1234.5), 1e-11);
}

}  // namespace
}  // namespace lockstep::tests
