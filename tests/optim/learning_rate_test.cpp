// Learning rates: exact at the corners, monotone between them, defined for every length of run.
#include "optim/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr double kPeak = 3e-4;

std::vector<double> rates(const LearningRateSpec& schedule, std::int64_t steps, double peak = kPeak) {
  std::vector<double> out;
  for (std::int64_t step = 0; step < steps; ++step) out.push_back(learning_rate(schedule, peak, step, steps));
  return out;
}

TEST(LearningRate, WarmUpRisesInEqualStepsToThePeak) {
  for (const RateKind kind : kRateKinds) {
    SCOPED_TRACE(name_of(kind));
    const auto r = rates({.kind = kind, .warmup = 4, .decay = 3}, 20, 8.0);
    EXPECT_EQ(std::vector<double>(r.begin(), r.begin() + 4), (std::vector<double>{2, 4, 6, 8}));
    EXPECT_LE(r[4], 8.0);
  }
}

TEST(LearningRate, EachScheduleHasItsValuesWorkedOutByHand) {
  using V = std::vector<double>;
  EXPECT_EQ(rates({.kind = RateKind::constant, .warmup = 2, .final = 0.5}, 5, 8.0), (V{4, 8, 8, 8, 8}));
  EXPECT_EQ(rates({.kind = RateKind::linear, .warmup = 0, .final = 0.5}, 5, 8.0), (V{8, 7, 6, 5, 4}));
  EXPECT_EQ(rates({.kind = RateKind::linear, .warmup = 2, .final = 0}, 6, 8.0), (V{4, 8, 6, 4, 2, 0}));
  EXPECT_EQ(rates({.kind = RateKind::wsd, .warmup = 2, .decay = 2, .final = 0}, 6, 8.0), (V{4, 8, 8, 8, 4, 0}));
  EXPECT_EQ(rates({.kind = RateKind::wsd, .warmup = 2, .decay = 1, .final = 0.25}, 4, 8.0), (V{4, 8, 8, 2}));
  const auto cosine = rates({.kind = RateKind::cosine, .warmup = 1, .final = 0.5}, 5, 8.0);
  const double eighth = 4 * 0.5 * (1 + std::cos(std::acos(-1.0) / 4));  // a quarter of the way down
  EXPECT_EQ(cosine[0], 8);
  EXPECT_NEAR(cosine[1], 4 + eighth, 1e-14);
  EXPECT_NEAR(cosine[2], 6, 1e-14);
  EXPECT_NEAR(cosine[3], 8 - eighth, 1e-14);
  EXPECT_EQ(cosine[4], 4);
}

TEST(LearningRate, EndsAtItsFinalShareToTheBitAndNeverRisesAfterWarmUp) {
  for (const RateKind kind : {RateKind::linear, RateKind::cosine, RateKind::wsd}) {
    for (const std::int64_t warmup : {0, 1, 7, 99}) {
      for (const double final : {0.0, 0.1, 1.0 / 3, 1.0}) {
        const auto r = rates({.kind = kind, .warmup = warmup, .decay = 13, .final = final}, 100);
        EXPECT_EQ(r.back(), kPeak * final) << name_of(kind) << " warm-up " << warmup;
        EXPECT_EQ(r[std::max<std::int64_t>(warmup - 1, 0)], kPeak);
        for (std::size_t s = std::max<std::int64_t>(warmup, 1); s < r.size(); ++s) {
          EXPECT_LE(r[s], r[s - 1] * (1 + 1e-15)) << name_of(kind) << " at " << s;
          EXPECT_GE(r[s], 0);
        }
      }
    }
  }
}

TEST(LearningRate, WithoutWarmUpIsAsWithAWarmUpOfOneStep) {
  for (const RateKind kind : kRateKinds) {
    EXPECT_EQ(rates({.kind = kind, .warmup = 0, .decay = 4}, 9), rates({.kind = kind, .warmup = 1, .decay = 4}, 9));
  }
}

TEST(LearningRate, ShortRunsAndLongWarmUpsAreDefined) {
  using V = std::vector<double>;
  for (const RateKind kind : kRateKinds) {
    SCOPED_TRACE(name_of(kind));
    EXPECT_EQ(rates({.kind = kind, .decay = 1, .final = 0}, 1, 8.0), V{8}) << "one step is at the peak";
    EXPECT_EQ(rates({.kind = kind, .warmup = 1, .decay = 1, .final = 0}, 1, 8.0), V{8});
    EXPECT_EQ(rates({.kind = kind, .warmup = 4, .decay = 4, .final = 0}, 4, 8.0), (V{2, 4, 6, 8})) << "no fall";
    EXPECT_EQ(rates({.kind = kind, .warmup = 8, .decay = 4, .final = 0}, 4, 8.0), (V{1, 2, 3, 4})) << "no peak";
    const std::int64_t huge = INT64_MAX;
    EXPECT_EQ(learning_rate({.kind = kind, .warmup = huge, .decay = huge}, 8.0, huge, huge), 8.0);
  }
  EXPECT_EQ(rates({.kind = RateKind::linear, .final = 0}, 2, 8.0), (V{8, 0}));
  EXPECT_EQ(rates({.kind = RateKind::wsd, .decay = 0, .final = 0}, 3, 8.0), (V{8, 8, 8})) << "no decay";
  EXPECT_EQ(rates({.kind = RateKind::wsd, .decay = 100, .final = 0}, 5, 8.0),
            rates({.kind = RateKind::linear, .final = 0}, 5, 8.0))
      << "a decay longer than the run";
  EXPECT_EQ(rates({.kind = RateKind::wsd, .warmup = 3, .decay = 100, .final = 0}, 5, 9.0), (V{3, 6, 9, 4.5, 0}));
}

TEST(LearningRate, AStepPastTheEndHasTheLastRate) {
  for (const RateKind kind : kRateKinds) {
    const LearningRateSpec schedule{.kind = kind, .warmup = 2, .decay = 3, .final = 0.25};
    EXPECT_EQ(learning_rate(schedule, kPeak, 1000, 10), learning_rate(schedule, kPeak, 9, 10));
  }
}

TEST(LearningRate, NonsenseIsAProgrammersError) {
  EXPECT_THROW(learning_rate({}, kPeak, -1, 10), ProgramError);
  EXPECT_THROW(learning_rate({}, kPeak, 0, 0), ProgramError);
  EXPECT_THROW(learning_rate({.warmup = -1}, kPeak, 0, 1), ProgramError);
  EXPECT_THROW(learning_rate({.decay = -1}, kPeak, 0, 1), ProgramError);
}

}  // namespace
}  // namespace lockstep
