// What holds of a loop that begins steps ahead, on a device: said once for the cpu, where a step begun is a step done,
// and for a GPU, where it is under way.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/steps_ahead.h"

namespace lockstep::tests {

// Two at once record, save, evaluate and learn what one after the other does.
inline void expect_ahead_equals_in_turn(RunDevice device) {
  for (const double dropout : {0.25, 0.0}) {
    const AheadRun one = run_ahead({.device = device, .dropout = dropout});
    const AheadRun two = run_ahead({.device = device, .steps_at_once = 2, .dropout = dropout});
    EXPECT_EQ(one.records.size(), 16u) << "twelve steps and four evaluations";
    EXPECT_EQ(two.records, one.records);
    EXPECT_EQ(two.saved, (std::vector<std::int64_t>{4, 8, 12}));
    EXPECT_EQ(two.saved, one.saved);
    EXPECT_EQ(two.weights, one.weights);
    EXPECT_EQ(two.progress.updates, 12);
  }
}

// A bad value in the first of two in flight: the second moves nothing where the run is to stop, and moves where it is
// to skip; what is said of it is of its own step.
inline void expect_bad_values_ahead(RunDevice device) {
  for (const BadValues rule : {BadValues::stop, BadValues::skip}) {
    const AheadRun one = run_ahead({.device = device, .bad_values = rule});
    const AheadRun two = run_ahead({.device = device, .steps_at_once = 2, .bad_values = rule});
    ASSERT_GT(one.bad_step, 2) << "not the first";
    ASSERT_NE(one.bad_step % 3, 0) << "nor one after which weights are looked at, so another is begun after it";
    ASSERT_NE(one.bad_step % 4, 0);
    EXPECT_EQ(two.records, one.records);
    EXPECT_EQ(two.saved, one.saved);
    EXPECT_EQ(two.weights, one.weights);
    EXPECT_EQ(two.ending, one.ending);
    EXPECT_EQ(two.progress.step, one.progress.step);
    EXPECT_EQ(two.progress.samples, 3 * one.progress.step);
    EXPECT_EQ(two.progress.updates, one.progress.updates);
    ASSERT_EQ(one.notes.size(), 1u);
    ASSERT_EQ(two.notes.size(), 1u);
    EXPECT_THAT(one.notes[0], ::testing::HasSubstr("the first was activation 'x.1' of embedding"));
    if (rule == BadValues::stop) {
      EXPECT_EQ(two.notes, one.notes);
      EXPECT_EQ(two.ending, Ending::bad_values);
      EXPECT_EQ(two.progress.step, one.bad_step);
      EXPECT_EQ(two.progress.updates, one.bad_step - 1);
    } else {  // the step after it is under way: it is not run again
      EXPECT_EQ(two.notes[0], fmt::format("step {}: a value is not finite, nothing was updated", one.bad_step));
      EXPECT_EQ(two.progress.updates, 11);
    }
  }
}

// A step overflows: it is left out, whatever the run does about bad values, and the next ones have half the scale, also
// the one that was under way before the host knew; after three good ones in a row it is doubled.
inline void expect_overflow_ahead(RunDevice device) {
  for (const double dropout : {0.25, 0.0}) {
    AheadOptions options{.device = device, .bad_values = BadValues::stop, .precision = Precision::fp16};
    options.precision.loss_scale.growth = 3;
    options.dropout = dropout;
    const AheadRun one = run_ahead(options);
    options.steps_at_once = 2;
    const AheadRun two = run_ahead(options);
    const std::int64_t bad = one.bad_step;
    ASSERT_GT(bad, 3);
    ASSERT_LT(bad, 12) << "others follow it";
    ASSERT_EQ(one.overflows.empty() ? 0 : one.overflows.front(), bad);
    // At twice the first scale others may overflow too.
    std::vector<double> scales;
    std::vector<std::string> notes;
    for (std::int64_t step = 1, good = 0, scale = 1 << 16; step <= 12; ++step) {
      scales.push_back(static_cast<double>(scale));
      if (std::ranges::find(one.overflows, step) != one.overflows.end()) {
        notes.push_back(fmt::format("step {}: gradients overflowed with loss scale {}, nothing was updated; {} next",
                                    step, scale, scale / 2));
        scale /= 2, good = 0;
      } else if (++good == 3) {
        scale *= 2, good = 0;
      }
    }
    EXPECT_LE(one.overflows.size(), 3u);
    for (const AheadRun* run : {&one, &two}) {
      EXPECT_EQ(run->ending, Ending::finished);
      EXPECT_EQ(run->overflows, one.overflows);
      EXPECT_EQ(run->loss_scales, scales);
      EXPECT_EQ(run->progress.updates, 12 - std::ssize(one.overflows));
      EXPECT_EQ(run->notes, notes);
    }
    EXPECT_EQ(two.records, one.records);
    EXPECT_EQ(two.weights, one.weights);
    EXPECT_EQ(two.progress.loss_scale, one.progress.loss_scale);
  }
}

// Asked to stop, it ends with what was begun, saves that, and has learned what that many steps learn.
inline void expect_stop_ahead(RunDevice device) {
  const AheadRun whole = run_ahead({.device = device});
  for (const std::int64_t after : {1, 3, 6}) {
    const AheadRun two = run_ahead({.device = device, .steps_at_once = 2, .stop_after = after});
    EXPECT_EQ(two.ending, Ending::stopped);
    EXPECT_GE(two.progress.step, after);
    EXPECT_LE(two.progress.step, after + 1);
    EXPECT_EQ(two.progress.updates, two.progress.step);
    EXPECT_EQ(steps_of(two, 99), steps_of(whole, two.progress.step));
    EXPECT_EQ(two.saved.back(), two.progress.step);
    const AheadRun one = run_ahead({.device = device, .stop_after = two.progress.step});
    EXPECT_EQ(two.weights, one.weights);
  }
}

}  // namespace lockstep::tests
