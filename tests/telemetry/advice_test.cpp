// How good an MFU is, and which key would raise it.
#include "telemetry/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "telemetry/mfu_band.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(MfuBands, HaveTheirEdges) {
  EXPECT_EQ(mfu_band(std::nextafter(1.0, 2.0)), MfuBand::above_peak);
  EXPECT_EQ(mfu_band(1), MfuBand::excellent);
  EXPECT_EQ(mfu_band(std::nextafter(0.5, 1.0)), MfuBand::excellent);
  EXPECT_EQ(mfu_band(0.5), MfuBand::good);
  EXPECT_EQ(mfu_band(0.3), MfuBand::good);
  EXPECT_EQ(mfu_band(std::nextafter(0.3, 0.0)), MfuBand::fair);
  EXPECT_EQ(mfu_band(0.15), MfuBand::fair);
  EXPECT_EQ(mfu_band(std::nextafter(0.15, 0.0)), MfuBand::poor);
  EXPECT_EQ(mfu_band(0), MfuBand::poor);
  EXPECT_EQ(mfu_band(std::numeric_limits<double>::quiet_NaN()), MfuBand::poor);
  EXPECT_EQ(name_of(MfuBand::excellent), "excellent");
  EXPECT_EQ(name_of(MfuBand::good), "good");
  EXPECT_EQ(name_of(MfuBand::fair), "fair");
  EXPECT_EQ(name_of(MfuBand::poor), "poor");
}

// Half of the step is compute, half went to this use.
TimesByUse half(TimeUse use) {
  TimesByUse times;
  times[TimeUse::compute] = 2;
  times[use] += 2;
  times[TimeUse::save] = times[TimeUse::evaluate] = 40;  // of no step
  return times;
}

const RunFacts kLarge{.micro_batch = 8, .seq = 4096};

TEST(MfuAdvice, NamesTheKeyOfTheLargestShare) {
  const auto key = [](TimeUse use, RunFacts run) {
    const Advice advice = mfu_advice(half(use), run);
    EXPECT_EQ(advice.use, use);
    EXPECT_EQ(advice.share, 0.5);
    EXPECT_THAT(advice.text, HasSubstr("50% of the step went to " + std::string(name_of(use))));
    EXPECT_THAT(advice.text, HasSubstr(advice.key));
    return advice.key;
  };
  RunFacts run = kLarge;
  EXPECT_EQ(key(TimeUse::wait_dp, run), "train.global_batch");
  run.overlap = false;
  EXPECT_EQ(key(TimeUse::wait_dp, run), "layout.overlap");
  run.overlap = true, run.zero = 3;
  EXPECT_EQ(key(TimeUse::wait_dp, run), "layout.zero");
  run = kLarge;
  run.pp = 4, run.micro = 4;
  EXPECT_EQ(key(TimeUse::wait_pp, run), "layout.micro");
  EXPECT_THAT(mfu_advice(half(TimeUse::wait_pp), run).text, HasSubstr("layout.micro=8"));
  run.micro_batch = 1;
  EXPECT_EQ(key(TimeUse::wait_pp, run), "train.global_batch");
  EXPECT_EQ(key(TimeUse::wait_cp, kLarge), "layout.cp");
  EXPECT_EQ(key(TimeUse::wait_tp, kLarge), "layout.tp");
  EXPECT_EQ(key(TimeUse::optimizer, kLarge), "train.global_batch");
  run = kLarge;
  run.dp = 2;
  EXPECT_EQ(key(TimeUse::optimizer, run), "layout.zero");
  run.zero = 1;
  EXPECT_EQ(key(TimeUse::optimizer, run), "train.global_batch");
  EXPECT_EQ(key(TimeUse::data, kLarge), "data.tokens");
  EXPECT_EQ(key(TimeUse::other, kLarge), "train.global_batch");
}

TEST(MfuAdvice, TakesTheLargerOfTwoAndLeavesSmallOnesToCompute) {
  TimesByUse times;
  times[TimeUse::compute] = 60, times[TimeUse::data] = 17, times[TimeUse::wait_tp] = 23;
  EXPECT_EQ(mfu_advice(times, kLarge).use, TimeUse::wait_tp);
  times[TimeUse::compute] = 86, times[TimeUse::data] = 14, times[TimeUse::wait_tp] = 0;
  EXPECT_EQ(mfu_advice(times, kLarge).use, TimeUse::compute);
  times[TimeUse::compute] = 85, times[TimeUse::data] = 15;
  EXPECT_EQ(mfu_advice(times, kLarge).use, TimeUse::data);
}

TEST(MfuAdvice, OfComputeLooksAtTheProducts) {
  TimesByUse times;
  times[TimeUse::compute] = 1;
  RunFacts run{.micro = 4, .micro_batch = 2, .seq = 128};
  EXPECT_EQ(mfu_advice(times, run).key, "layout.micro");
  EXPECT_THAT(mfu_advice(times, run).text, HasSubstr("256 tokens"));
  EXPECT_THAT(mfu_advice(times, run).text, HasSubstr("layout.micro=2 "));
  run.pp = 2;  // a pipeline needs them
  EXPECT_EQ(mfu_advice(times, run).key, "train.global_batch");
  run.pp = 1, run.micro = 1;
  EXPECT_EQ(mfu_advice(times, run).key, "train.global_batch");
  run.seq = 256;  // 512 tokens fill a core
  EXPECT_EQ(mfu_advice(times, run).key, "");
  run.cp = 2;
  EXPECT_EQ(mfu_advice(times, run).key, "train.global_batch");
  run.cp = 1, run.gpu = true;
  EXPECT_EQ(mfu_advice(times, run).key, "train.global_batch");
  run.seq = 4096;
  EXPECT_EQ(mfu_advice(times, run).key, "");
  run.recompute = true;
  EXPECT_EQ(mfu_advice(times, run).key, "memory.recompute");
}

TEST(MfuAdvice, SaysWhereTimesAreNotKnown) {
  const Advice advice = mfu_advice({}, kLarge);
  EXPECT_FALSE(advice.share);
  EXPECT_THAT(advice.text, HasSubstr("not recorded"));
}

}  // namespace
}  // namespace lockstep
