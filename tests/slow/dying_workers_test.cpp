// Fifty workers of an asynchronous run are killed, one after the other (tests/launch/dying_workers_test.cpp kills
// five).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/worker_kills.h"

namespace lockstep::tests {
namespace {

using ::testing::IsEmpty;

TEST(FiftyWorkers, ThatAreKilledStopNobodyElse) {
  EXPECT_THAT(kill_workers({.layout = "dp=3,dp_kind=server,servers=1", .kills = 50, .seed = 2}), IsEmpty());
}

TEST(FiftyWorkers, OfSeveralServersWithABoundStopNobodyElse) {
  EXPECT_THAT(
      kill_workers(
          {.layout = "dp=4,dp_kind=server,servers=2", .kills = 50, .seed = 3, .more = {"--set", "sync.staleness=4"}}),
      IsEmpty());
}

TEST(FiftyWorkers, OfTwoStagesStopNobodyElse) {
  EXPECT_THAT(kill_workers({.layout = "dp=3,pp=2,micro=2,dp_kind=server,servers=2", .kills = 50, .seed = 4}),
              IsEmpty());
}

}  // namespace
}  // namespace lockstep::tests
