// Where time goes: every moment is of one use, and all of them together are the time that has passed.
#include "telemetry/time_account.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

void spend(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

TEST(TimeAccount, AddsUpToTheTimeThatHasPassed) {
  const auto before = Clock::now();
  TimeAccount account;
  const auto begin = Clock::now();
  {
    const Spending computing(&account, TimeUse::compute);
    spend(0.02);
    {
      const Spending waiting(&account, TimeUse::wait_tp);
      spend(0.03);
    }
    account.enter(TimeUse::optimizer);
    spend(0.01);
  }
  spend(0.005);
  const auto end = Clock::now();
  const TimesByUse times = account.take();
  const auto after = Clock::now();
  EXPECT_GE(times.total(), seconds_between(begin, end));
  EXPECT_LE(times.total(), seconds_between(before, after));
  EXPECT_GE(times[TimeUse::compute], 0.02);
  EXPECT_GE(times[TimeUse::wait_tp], 0.03);
  EXPECT_GE(times[TimeUse::optimizer], 0.01);
  EXPECT_GE(times[TimeUse::other], 0.005) << "what is left at the end of a scope is of the use before it";
  EXPECT_EQ(times[TimeUse::wait_dp], 0);
  EXPECT_EQ(times.waited(), times[TimeUse::wait_tp]);
  EXPECT_DOUBLE_EQ(times.busy(), times.total() - times[TimeUse::wait_tp]);
}

TEST(TimeAccount, BeginsAnewWhenItIsTaken) {
  TimeAccount account;
  account.enter(TimeUse::data);
  spend(0.01);
  EXPECT_GE(account.take()[TimeUse::data], 0.01);
  const auto begin = Clock::now();
  const TimesByUse times = account.take();
  EXPECT_LE(times.total(), 0.01 + seconds_between(begin, Clock::now()));
  EXPECT_EQ(times[TimeUse::other], 0) << "the clock runs on what it ran on";
}

TEST(TimeAccount, CountsNeitherSavesNorEvaluationsAsBusy) {
  TimesByUse times;
  times[TimeUse::compute] = 3;
  times[TimeUse::save] = 10;
  times[TimeUse::evaluate] = 20;
  times[TimeUse::wait_dp] = 5;
  EXPECT_EQ(times.total(), 38);
  EXPECT_EQ(times.busy(), 3);
}

}  // namespace
}  // namespace lockstep
