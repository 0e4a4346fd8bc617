// After which steps the state is copied: as told, or by what a copy was measured to cost.
#include "train/copy_pace.h"

#include <gtest/gtest.h>

#include <cmath>

#include "spec/run/run_spec.h"

namespace lockstep {
namespace {

// Runs steps of `step` seconds, to which a copy adds `copy`, until the choice is made.
struct Measured {
  CopyPace::Choice choice;
  std::int64_t steps = 0, most_between = 0;
};
Measured measure(double step, double copy, double jitter = 0) {
  CopyPace pace(kCopyAuto, 100);
  Measured measured;
  std::int64_t last = 100;
  for (std::int64_t done = 100; done < 2000; ++done, ++measured.steps) {
    const bool copies = pace.wants(done);
    if (copies) {
      pace.copied(done);
      last = done;
    }
    measured.most_between = std::max(measured.most_between, done + 1 - last);
    const double noise = 1 + jitter * std::sin(static_cast<double>(done * done));
    if (const auto choice = pace.stepped((step + (copies ? copy : 0)) * noise, copies)) {
      measured.choice = *choice;
      return measured;
    }
  }
  ADD_FAILURE() << "no choice";
  return measured;
}

TEST(CopyPace, AsToldItCountsFromWhereTheRunBegins) {
  CopyPace pace(3, 10);
  EXPECT_FALSE(pace.wants(12));
  EXPECT_TRUE(pace.wants(13));
  pace.copied(13);
  EXPECT_FALSE(pace.wants(15));
  EXPECT_TRUE(pace.wants(16));
  EXPECT_FALSE(pace.stepped(1, true));
  CopyPace none(0, 0);
  EXPECT_FALSE(none.wants(1000));
}

TEST(CopyPace, ACopyThatHidesIsMadeAfterEveryStep) {
  EXPECT_EQ(measure(0.1, 0.0015).choice.every, 1);
  EXPECT_EQ(measure(0.1, 0).choice.every, 1);
}

TEST(CopyPace, OneThatDoesNotIsMadeAsSeldomAsItsShareAllows) {
  for (const auto& [copy, every] : {std::pair(0.0021, 2), std::pair(0.01, 5), std::pair(0.25, 125)}) {
    const Measured measured = measure(0.1, copy);
    EXPECT_EQ(measured.choice.every, every) << copy;
    EXPECT_LE(measured.choice.copy_seconds / (0.1 * static_cast<double>(measured.choice.every)),
              CopyPace::kMostShare + 1e-9);
  }
}

TEST(CopyPace, NoiseOfEverySingleStepDoesNotDecide) {
  const Measured measured = measure(0.02, 0.004, 0.05);
  EXPECT_GE(measured.choice.every, 7);
  EXPECT_LE(measured.choice.every, 14);
}

TEST(CopyPace, WhileItMeasuresAFaultCostsTwoStepsAtMost) {
  const Measured measured = measure(0.1, 0.05);
  EXPECT_LE(measured.most_between, 2);
  EXPECT_LE(measured.steps, 64);
}

}  // namespace
}  // namespace lockstep
