// A simulated month with failures: equal to the closed form where there is one, and right in each special case.
#include "plan/goodput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>

#include "base/error.h"

namespace lockstep {
namespace {

// A run of 1,024 devices with a failure every `mean` seconds and enough spares; long enough for 100,000 failures.
GoodputSpec often_failing(double mean) {
  return {.step_seconds = 2,
          .ranks = 1024,
          .device_hours_between_failures = mean * 1024 / 3600,
          .duration_seconds = mean * 10'000,
          .repeats = 10};
}

void expect_times_add_up(const GoodputSpec& spec, const GoodputOutcome& run) {
  EXPECT_NEAR(static_cast<double>(run.steps) * spec.step_seconds + run.lost.sum(), spec.duration_seconds,
              1e-9 * spec.duration_seconds);
  for (const double lost :
       {run.lost.redone, run.lost.saves, run.lost.detection, run.lost.waiting, run.lost.restart, run.lost.shrunk})
    EXPECT_GE(lost, -1e-6);
}

TEST(Goodput, EqualsTheClosedFormForExponentialFailures) {
  double ratios = 0, cases = 0, worst = 0;
  for (const double mean : {600.0, 50'000.0})
    for (const double work : {0.02, 0.2, 1.0})  // of the mean
      for (const double stall : {0.0, 5.0, 60.0})
        for (const double write : {0.0, 0.5, 1.5})  // of the work
          for (const double recovery : {0.0, 300.0}) {
            GoodputSpec spec = often_failing(mean);
            spec.save_every = std::max<std::int64_t>(1, std::llround(mean * work / spec.step_seconds));
            spec.save_stall_seconds = stall;
            spec.save_write_seconds = write * mean * work;
            spec.detect_seconds = recovery * 0.1;
            spec.restart_seconds = recovery * 0.5;
            spec.load_seconds = recovery * 0.4;
            // As many segments are completed where most attempts fail.
            spec.duration_seconds *= std::exp(work + (stall + spec.save_write_seconds) / mean);
            spec.seed = static_cast<std::uint64_t>(cases);  // chance of its own
            const double expected =
                expected_goodput(checkpoint_costs(spec), static_cast<double>(spec.save_every) * spec.step_seconds);
            const double ratio = simulate_goodput(spec).mean / expected;
            EXPECT_NEAR(ratio, 1, 0.02) << "mean " << mean << " work " << work << " stall " << stall << " write "
                                        << write << " recovery " << recovery;
            ratios += ratio, ++cases, worst = std::max(worst, std::abs(ratio - 1));
          }
  EXPECT_NEAR(ratios / cases, 1, 0.001) << "no bias: what is left is chance";
  RecordProperty("worst", std::to_string(worst));
}

TEST(Goodput, ClosedFormIsTheKnownOneWhereTheWriteTakesNoTime) {
  const CheckpointCosts costs{
      .failures_per_second = 1e-3, .stall_seconds = 20, .recovery_seconds = 100, .failures_during_recovery = false};
  EXPECT_NEAR(expected_segment_seconds(costs, 300), (1000 + 100) * (std::exp(0.32) - 1), 1e-9);
  CheckpointCosts struck = costs;
  struck.failures_during_recovery = true;
  EXPECT_NEAR(expected_segment_seconds(struck, 300), 1000 * std::exp(0.1) * (std::exp(0.32) - 1), 1e-9);
  struck.write_seconds = 50;
  EXPECT_NEAR(expected_segment_seconds(struck, 300), 1000 * std::exp(0.15) * (std::exp(0.32) - 1), 1e-9);
  struck.failures_per_second = 0;
  EXPECT_EQ(expected_segment_seconds(struck, 300), 320);
}

TEST(CheckpointInterval, BestIsWithin5PercentOfYoungAndDalyWhereASaveIsShort) {
  for (const double mean : {1e3, 1e4, 1e6})
    for (const double share : {1e-6, 1e-4, 1e-3, 4e-3}) {
      const CheckpointCosts costs{
          .failures_per_second = 1 / mean, .stall_seconds = share * mean, .recovery_seconds = 77};
      const double best = best_work_seconds(costs);
      EXPECT_NEAR(young_work_seconds(costs) / best, 1, 0.05) << mean << " " << share;
      EXPECT_NEAR(daly_work_seconds(costs) / best, 1, 0.002) << mean << " " << share;
    }
  // Daly's holds for longer saves too, where Young's does not.
  const CheckpointCosts costs{.failures_per_second = 1e-4, .stall_seconds = 2000};
  EXPECT_NEAR(daly_work_seconds(costs) / best_work_seconds(costs), 1, 0.05);
  EXPECT_GT(young_work_seconds(costs) / best_work_seconds(costs), 1.1);
}

TEST(CheckpointInterval, NoOtherIntervalIsBetterByTheClosedForm) {
  for (const double stall : {0.0, 1.0, 40.0, 3000.0})
    for (const double write : {0.0, 30.0, 900.0, 20'000.0})
      for (const double recovery : {0.0, 600.0}) {
        GoodputSpec spec = often_failing(5000);
        spec.save_stall_seconds = stall;
        spec.save_write_seconds = write;
        spec.load_seconds = recovery;
        const auto goodput = [&](std::int64_t steps) {
          return expected_goodput(checkpoint_costs(spec), static_cast<double>(steps) * spec.step_seconds);
        };
        std::int64_t best = 1;
        for (std::int64_t steps = 1; steps < 20'000; ++steps)
          if (goodput(steps) > goodput(best)) best = steps;
        EXPECT_EQ(best_interval(spec), best) << stall << " " << write << " " << recovery;
      }
}

// A million failures per interval, since goodput is flat around the best one.
TEST(CheckpointInterval, NoOtherIntervalIsBetterInTheSimulation) {
  GoodputSpec spec = often_failing(10'000);
  spec.save_stall_seconds = 300;
  spec.save_write_seconds = 200;
  spec.restart_seconds = 400;
  spec.duration_seconds *= 10;
  const std::int64_t best = best_interval(spec);
  double highest = 0, at_highest = 0;
  for (const double factor : {0.4, 0.6, 0.75, 0.9, 1.0, 1.1, 1.3, 1.6, 2.5}) {
    spec.save_every = std::llround(factor * static_cast<double>(best));
    if (const double goodput = simulate_goodput(spec).mean; goodput > highest) highest = goodput, at_highest = factor;
  }
  EXPECT_NEAR(at_highest, 1, 0.11);
  spec.save_every = best;
  EXPECT_NEAR(simulate_goodput(spec).mean, highest, 3e-4);
}

TEST(CheckpointInterval, WhatNeverFailsIsNeverSavedInBetween) {
  EXPECT_EQ(best_interval({.step_seconds = 2, .save_stall_seconds = 5, .duration_seconds = 1001}), 500);
}

TEST(Goodput, WithoutFailuresOnlySavesCost) {
  // Nine whole cycles of 10 steps and a save in 900 seconds, and one step of the tenth.
  const GoodputSpec spec{.step_seconds = 9,
                         .ranks = 7,
                         .save_every = 10,
                         .save_stall_seconds = 10,
                         .save_write_seconds = 80,
                         .detect_seconds = 1,
                         .duration_seconds = 909,
                         .repeats = 3};
  const GoodputForecast forecast = simulate_goodput(spec);
  EXPECT_EQ(forecast.failures, 0);
  EXPECT_NEAR(forecast.steps, 91, 1e-9);
  EXPECT_NEAR(forecast.lost.saves, 90, 1e-9);
  EXPECT_NEAR(forecast.lost.sum(), 90, 1e-9);
  EXPECT_NEAR(forecast.mean, 819.0 / 909, 1e-12);
  EXPECT_EQ(forecast.low, forecast.high);
}

TEST(Goodput, ASaveWaitsForTheOneBeforeIt) {
  // On disk 200 seconds after its stall, while 90 seconds of steps run: saves are 210 seconds apart.
  const GoodputOutcome run = simulate_run({.step_seconds = 9,
                                           .save_every = 10,
                                           .save_stall_seconds = 10,
                                           .save_write_seconds = 200,
                                           .duration_seconds = 100 + 4 * 210},
                                          0);
  EXPECT_EQ(run.steps, 50);
  EXPECT_NEAR(run.lost.saves, 10 + 4 * 120, 1e-9);
}

// The gaps are those of the seed whatever the costs are, so two runs with the same first failure can be compared.
struct FirstFailure {
  std::int64_t repeat;
  double at;
};
FirstFailure first_failure_between(GoodputSpec spec, double begin, double end) {
  for (std::int64_t repeat = 0; repeat < 100'000; ++repeat) {
    spec.detect_seconds = 1e9;  // nothing after it
    const GoodputOutcome run = simulate_run(spec, repeat);
    const double at = spec.duration_seconds - run.lost.detection;
    if (run.failures > 0 && at >= begin && at < end) return {repeat, at};
  }
  ADD_FAILURE() << "no such failure";
  return {};
}

TEST(Goodput, AFailureBeforeASaveIsOnDiskFallsBackToTheOneBefore) {
  GoodputSpec spec{.step_seconds = 1,
                   .ranks = 1,
                   .device_hours_between_failures = 1000 / 3600.0,
                   .save_every = 90,
                   .save_stall_seconds = 10,
                   .save_write_seconds = 40,
                   .duration_seconds = 1000};
  // The third save's stall ends at 300, and it is on disk at 340.
  const auto [early, early_at] = first_failure_between(spec, 301, 339);
  const auto [late, late_at] = first_failure_between(spec, 341, 380);
  spec.detect_seconds = 1e9;
  const GoodputOutcome lost = simulate_run(spec, early), kept = simulate_run(spec, late);
  EXPECT_EQ(lost.steps, 180);
  EXPECT_EQ(lost.saves_lost, 1);
  EXPECT_NEAR(lost.lost.redone, 90 + early_at - 300, 1e-6);
  EXPECT_EQ(kept.steps, 270);
  EXPECT_EQ(kept.saves_lost, 0);
  EXPECT_NEAR(kept.lost.redone, late_at - 300, 1e-6);
  // A failure during a stall loses that save.
  const auto [stalled, stalled_at] = first_failure_between(spec, 291, 299);
  const GoodputOutcome during = simulate_run(spec, stalled);
  EXPECT_EQ(during.steps, 180);
  EXPECT_NEAR(during.lost.redone, 90, 1e-6);
  EXPECT_NEAR(during.lost.saves, 20 + stalled_at - 290, 1e-6);
  for (const auto& run : {lost, kept, during}) expect_times_add_up(spec, run);
}

TEST(Goodput, AFailureDuringRecoveryBeginsItAnew) {
  GoodputSpec spec = often_failing(1000);
  spec.detect_seconds = 20;
  spec.restart_seconds = 200;
  spec.load_seconds = 80;
  spec.save_every = 50;
  const GoodputForecast forecast = simulate_goodput(spec);
  // Each recovery needs 300 seconds without a failure: it fails with probability 1 - e^-0.3, and all attempts together
  // take (e^0.3 - 1) 1000 seconds for each failure during training.
  const double fails = 1 - std::exp(-0.3);
  EXPECT_NEAR(forecast.recoveries_failed / forecast.failures, fails, 0.01);
  const double recoveries = forecast.failures - forecast.recoveries_failed;
  EXPECT_NEAR((forecast.lost.detection + forecast.lost.restart) / recoveries, 1000 * std::expm1(0.3), 5);
}

TEST(Goodput, WaitsForRepairOnceSparesAreExhausted) {
  GoodputSpec spec = often_failing(10'000);
  spec.repair_seconds = 50'000;  // five nodes are out on average
  spec.save_every = 200;
  const auto waiting = [&](std::int64_t spares) {
    spec.spare_nodes = spares;
    const GoodputOutcome run = simulate_run(spec, 0);
    expect_times_add_up(spec, run);
    return run.lost.waiting / spec.duration_seconds;
  };
  const double none = waiting(0), some = waiting(4), enough = waiting(30);
  EXPECT_GT(none, 0.8);
  EXPECT_GT(some, 0.1);
  EXPECT_LT(some, none);
  EXPECT_EQ(enough, 0);
  spec.spare_nodes = 0;
  spec.repair_seconds = 0;
  EXPECT_EQ(simulate_goodput(spec).lost.waiting, 0);
}

TEST(Goodput, ShrinkingLosesSpeedInsteadOfWaitingAndGrowsBack) {
  GoodputSpec spec = often_failing(10'000);
  spec.devices_per_node = 8;
  spec.repair_seconds = 50'000;
  spec.save_every = 200;
  spec.save_stall_seconds = 5;
  spec.save_write_seconds = 60;
  const GoodputForecast waits = simulate_goodput(spec);
  spec.shrink = true;
  spec.nodes_per_replica = 4;
  const GoodputForecast shrinks = simulate_goodput(spec);
  EXPECT_GT(shrinks.mean, waits.mean + 0.5);
  EXPECT_EQ(shrinks.lost.waiting, 0);
  // Five of 128 nodes are out on average; whole replicas of four nodes lose up to three more.
  const double slower = shrinks.lost.shrunk / spec.duration_seconds;
  EXPECT_GT(slower, 4.0 / 128);
  EXPECT_LT(slower, 9.0 / 128);
  expect_times_add_up(spec, simulate_run(spec, 3));
  spec.nodes_per_replica = 128;  // one replica: it cannot shrink
  EXPECT_GT(simulate_goodput(spec).lost.waiting, 0.8 * spec.duration_seconds);
}

// Also one that strikes while a shrunk run restarts to grow, which begins without a detection.
TEST(Goodput, EveryFailureIsDetected) {
  GoodputSpec spec = often_failing(10'000);
  spec.devices_per_node = 64;
  spec.repair_seconds = 20'000;
  spec.shrink = true;
  spec.detect_seconds = 1;
  spec.restart_seconds = 3000;
  const GoodputForecast forecast = simulate_goodput(spec);
  EXPECT_NEAR(forecast.lost.detection / forecast.failures, 1, 0.001);
  EXPECT_GT(forecast.lost.restart, forecast.failures * 3500) << "it grows back often";
}

TEST(Goodput, NodesFailBesideTheirDevices) {
  GoodputSpec spec = often_failing(10'000);
  const double devices = spec.failures_per_second();
  spec.devices_per_node = 8;
  spec.node_hours_between_failures = spec.device_hours_between_failures;
  EXPECT_NEAR(spec.failures_per_second(), devices * 9 / 8, 1e-12);
  EXPECT_NEAR(simulate_goodput(spec).failures, 11'250, 100);
}

TEST(Goodput, AHundredThousandRanksForAMonthTakeMilliseconds) {
  GoodputSpec spec{.step_seconds = 0.5,
                   .ranks = 100'000,
                   .devices_per_node = 8,
                   .device_hours_between_failures = 50'000,
                   .save_every = 200,
                   .save_stall_seconds = 1,
                   .save_write_seconds = 30,
                   .detect_seconds = 10,
                   .restart_seconds = 120,
                   .load_seconds = 30,
                   .spare_nodes = 20,
                   .repair_seconds = 4 * 3600};
  const auto begin = std::chrono::steady_clock::now();
  const GoodputOutcome month = simulate_run(spec, 0);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 0.1) << "a millisecond, on a machine that does nothing else";
  expect_times_add_up(spec, month);
  const GoodputForecast forecast = simulate_goodput(spec);
  EXPECT_NEAR(forecast.failures, 1440, 30);
  EXPECT_LT(forecast.low, forecast.mean);
  EXPECT_GT(forecast.high, forecast.mean);
}

// The Llama 3 report (arXiv 2407.21783): 16,384 GPUs, 419 unexpected interruptions in 54 days, more than 90 % effective
// training time. Save and restart times are not in it; these are plausible for 16,384 GPUs.
TEST(Goodput, OfTheLlama3RunIsAbove90Percent) {
  GoodputSpec spec{.step_seconds = 6,
                   .ranks = 16'384,
                   .devices_per_node = 8,
                   .device_hours_between_failures = 16'384 * 54 * 24 / 419.0,
                   .save_every = 100,
                   .save_stall_seconds = 5,
                   .save_write_seconds = 60,
                   .detect_seconds = 60,
                   .restart_seconds = 300,
                   .load_seconds = 120,
                   .spare_nodes = 16,
                   .repair_seconds = 24 * 3600,
                   .duration_seconds = 54 * 86400.0};
  EXPECT_NEAR(spec.device_hours_between_failures, 50'700, 50);
  const GoodputForecast forecast = simulate_goodput(spec);
  EXPECT_NEAR(forecast.failures, 419, 8);
  EXPECT_GT(forecast.low, 0.90);
  EXPECT_LT(forecast.high, 0.96);
}

TEST(Goodput, IsAFunctionOfItsInputAndSeed) {
  GoodputSpec spec = often_failing(3000);
  spec.restart_seconds = 60;
  const GoodputForecast one = simulate_goodput(spec), same = simulate_goodput(spec);
  EXPECT_EQ(one.mean, same.mean);
  EXPECT_EQ(one.lost.redone, same.lost.redone);
  spec.seed = 2;
  EXPECT_NE(simulate_goodput(spec).mean, one.mean);
}

TEST(Goodput, EveryMistakeIsOneLineWithARemedy) {
  const std::pair<std::function<void(GoodputSpec&)>, const char*> mistakes[] = {
      {[](GoodputSpec& s) { s.step_seconds = 0; }, "step_seconds is 0; give"},
      {[](GoodputSpec& s) { s.step_seconds = -1; }, "step_seconds is -1; give"},
      {[](GoodputSpec& s) { s.step_seconds = std::nan(""); }, "step_seconds is nan; give"},
      {[](GoodputSpec& s) { s.step_seconds = 1e-12; }, "too many to count; give"},
      {[](GoodputSpec& s) { s.duration_seconds = INFINITY; }, "duration_seconds is inf; give"},
      {[](GoodputSpec& s) { s.device_hours_between_failures = -2; }, "device_hours_between_failures is -2; give"},
      {[](GoodputSpec& s) { s.device_hours_between_failures = 1e-9; }, "failures are expected"},
      {[](GoodputSpec& s) { s.node_hours_between_failures = 1e-300; }, "failures are expected"},
      {[](GoodputSpec& s) { s.load_seconds = -0.1; }, "load_seconds is -0.1; give"},
      {[](GoodputSpec& s) { s.ranks = 0; }, "ranks is 0; give"},
      {[](GoodputSpec& s) { s.save_every = 0; }, "save_every is 0; give"},
      {[](GoodputSpec& s) { s.spare_nodes = -1; }, "spare_nodes is -1; give"},
      {[](GoodputSpec& s) { s.repeats = 1 << 30; }, "repeats is 1073741824; give"},
      {[](GoodputSpec& s) { s.shrink = true, s.ranks = 7, s.nodes_per_replica = 2; }, "not whole replicas"},
  };
  for (const auto& [make, message] : mistakes) {
    GoodputSpec spec;
    make(spec);
    try {
      simulate_goodput(spec);
      ADD_FAILURE() << message;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(message));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("; give "));
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      EXPECT_EQ(error.code(), ExitCode::usage);
    }
  }
}

}  // namespace
}  // namespace lockstep
