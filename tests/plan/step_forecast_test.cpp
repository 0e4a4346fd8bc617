// The clock of forecasts on cases small enough to be reckoned by hand.
#include "plan/step_forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::tests {
namespace {

using Pieces = std::vector<ForecastPiece>;

ForecastPiece computes(double seconds) { return {.kind = ForecastPiece::Kind::compute, .seconds = seconds}; }
ForecastPiece starts(int message) { return {.kind = ForecastPiece::Kind::start, .message = message}; }
ForecastPiece carried(int message, double link) {
  return {.kind = ForecastPiece::Kind::start, .message = message, .link = link};
}
ForecastPiece waits(int message) { return {.kind = ForecastPiece::Kind::wait, .message = message}; }
const ForecastPiece kEnd{.kind = ForecastPiece::Kind::mark};

// When each rank ended, and how long it had been held.
std::vector<double> ends(const std::vector<ForecastRank>& ranks) {
  std::vector<double> all;
  for (const ForecastRank& rank : ranks) all.push_back(rank.marks.back().at);
  return all;
}
std::vector<double> held(const std::vector<ForecastRank>& ranks) {
  std::vector<double> all;
  for (const ForecastRank& rank : ranks) all.push_back(rank.marks.back().waited);
  return all;
}
MATCHER_P(Are, expected, "") {
  return ::testing::ExplainMatchResult(::testing::Pointwise(::testing::DoubleNear(1e-9), expected), arg,
                                       result_listener);
}
using All = std::vector<double>;

TEST(Forecast, HidesAMessageWhereSomebodyHasTimeForIt) {
  // Rank 1 has nothing else to do, and moves it while rank 0 computes.
  const ForecastWorld world{
      .ranks = {{starts(0), computes(10), waits(0), computes(1), kEnd}, {starts(0), waits(0), kEnd}},
      .messages = {{.ranks = 2, .seconds = 3, .latency = 0.5}},
      .cores = 2};
  EXPECT_THAT(ends(forecast(world)), Are(All{11, 3.5}));
  EXPECT_THAT(held(forecast(world)), Are(All{0, 3.5}));
}

TEST(Forecast, ExposesAMessageWhereEverybodyComputes) {
  // Both move it when they have come to wait for it.
  const ForecastWorld world{
      .ranks = {{starts(0), computes(10), waits(0), computes(1), kEnd}, {starts(0), computes(10), waits(0), kEnd}},
      .messages = {{.ranks = 2, .seconds = 3, .latency = 0.5}},
      .cores = 2};
  EXPECT_THAT(ends(forecast(world)), Are(All{13, 12}));
  EXPECT_THAT(held(forecast(world)), Are(All{2, 2}));
}

TEST(Forecast, HoldsWhoComesFirstUntilTheLastHasStarted) {
  const ForecastWorld world{.ranks = {{starts(0), waits(0), kEnd}, {computes(4), starts(0), waits(0), kEnd}},
                            .messages = {{.ranks = 2, .seconds = 2}},
                            .cores = 2};
  EXPECT_THAT(ends(forecast(world)), Are(All{5, 5}));
  EXPECT_THAT(held(forecast(world)), Are(All{5, 1}));
}

TEST(Forecast, MovesMessagesOfAChannelOneAfterTheOther) {
  // The second could be moved by rank 1 alone, but the first, which rank 0 is late for, is before it.
  ForecastWorld world{
      .ranks = {{starts(1), computes(4), starts(0), waits(0), waits(1), kEnd}, {starts(0), starts(1), waits(1), kEnd}},
      .messages = {{.ranks = 2, .channel = 0, .seconds = 1}, {.ranks = 2, .channel = 0, .seconds = 2}},
      .cores = 2};
  EXPECT_THAT(ends(forecast(world)), Are(All{5.5, 5.5}));
  world.messages[1].channel = 1;
  EXPECT_THAT(ends(forecast(world)), Are(All{5, 2}));
}

TEST(Forecast, LetsTheLastToComeMoveWhatHasNoSeconds) {
  // Nobody waits when it is moved; whoever waits later need not.
  const ForecastWorld world{.ranks = {{starts(0), computes(3), waits(0), kEnd},
                                      {computes(1), starts(0), computes(1), waits(0), kEnd},
                                      {computes(1), starts(0), waits(0), kEnd}},
                            .messages = {{.ranks = 3, .latency = 0.25}},
                            .cores = 3};
  EXPECT_THAT(ends(forecast(world)), Are(All{3, 2, 1.25}));
  const ForecastWorld busy{
      .ranks = {{starts(0), computes(3), waits(0), kEnd}, {starts(0), computes(2), waits(0), kEnd}},
      .messages = {{.ranks = 2, .latency = 0.25}},
      .cores = 2};
  EXPECT_THAT(held(forecast(busy)), Are(All{0, 0}));
}

TEST(Forecast, SharesCoresInTurns) {
  const ForecastWorld alone{.ranks = {{computes(1), kEnd}, {computes(1), kEnd}}, .cores = 2};
  EXPECT_THAT(ends(forecast(alone)), Are(All{1, 1}));
  ForecastWorld shared{
      .ranks = {{computes(1), kEnd}, {computes(1), kEnd}, {computes(1), kEnd}}, .cores = 1, .turn = 0.25};
  EXPECT_THAT(ends(forecast(shared)), Are(All{2.5, 2.75, 3}));
  shared.cores = 2;  // 0 and 1, 2 and 0, 1 and 2, …: two cores are busy until the last quarter or the end
  EXPECT_THAT(ends(forecast(shared)), Are(All{1.25, 1.5, 1.5}));
  shared = {.ranks = {{computes(1), kEnd}, {computes(1), kEnd}}, .cores = 2, .threads = 2, .turn = 0.5};
  EXPECT_THAT(ends(forecast(shared)), Are(All{1.5, 2}));
  shared.threads = 4;
  EXPECT_THAT(ends(forecast(shared)), Are(All{3.5, 4}));
}

// The core is busy all of the time, and still each is held for about half of it: until it has the core again.
TEST(Forecast, MakesRanksThatShareACoreAndMeetOftenWaitForEachOther) {
  ForecastWorld world{.ranks = {{}, {}}, .cores = 1, .turn = 10};
  for (int m = 0; m < 5; ++m) {
    world.messages.push_back({.ranks = 2});
    for (Pieces& rank : world.ranks) rank.insert(rank.end(), {computes(1), starts(m), waits(m)});
  }
  for (Pieces& rank : world.ranks) rank.push_back(kEnd);
  EXPECT_THAT(ends(forecast(world)), Are(All{10, 10}));
  EXPECT_THAT(held(forecast(world)), Are(All{5, 4}));
}

// Each has a link of its own: the message is moved at 1.25, and known of when the link has carried it too.
TEST(Forecast, LetsARankSleepUntilItsLinkHasCarriedTheMessage) {
  const ForecastWorld world{
      .ranks = {{carried(0, 3), computes(1), waits(0), kEnd}, {carried(0, 2), computes(1), waits(0), kEnd}},
      .messages = {{.ranks = 2, .seconds = 0.5}},
      .cores = 2};
  EXPECT_THAT(ends(forecast(world)), Are(All{3, 2}));
  EXPECT_THAT(held(forecast(world)), Are(All{2, 1}));
}

TEST(Forecast, LetsALinkCarryOneMessageAfterTheOtherBesideWork) {
  const ForecastWorld world{
      .ranks = {{carried(0, 2), computes(1), carried(1, 2), waits(0), computes(4), waits(1), kEnd},
                {carried(0, 2), carried(1, 1), waits(0), waits(1), kEnd}},
      .messages = {{.ranks = 2, .channel = 0}, {.ranks = 2, .channel = 1}},
      .cores = 2};
  EXPECT_THAT(ends(forecast(world)), Are(All{6, 3}));
  EXPECT_THAT(held(forecast(world)), Are(All{1, 3}));
}

TEST(Forecast, TellsAReceiverWhenTheSendersLinkHasCarriedIt) {
  const ForecastWorld world{.ranks = {{computes(1), carried(0, 2), kEnd}, {starts(0), waits(0), kEnd}},
                            .messages = {{.ranks = 2, .one_way = true}},
                            .cores = 2};
  EXPECT_THAT(ends(forecast(world)), Are(All{1, 3}));
  EXPECT_THAT(held(forecast(world)), Are(All{0, 3}));
}

TEST(Forecast, TakesNoCoreForARankThatSleeps) {
  const ForecastWorld world{
      .ranks = {{carried(0, 2), waits(0), kEnd}, {carried(0, 0.5), waits(0), computes(1.5), kEnd}},
      .messages = {{.ranks = 2}},
      .cores = 1};
  EXPECT_THAT(ends(forecast(world)), Are(All{2, 2}));
}

TEST(Forecast, RefusesRanksThatWaitForEachOther) {
  const ForecastWorld world{.ranks = {{waits(0), starts(1), kEnd}, {waits(1), starts(0), kEnd}},
                            .messages = {{.ranks = 1, .channel = 0}, {.ranks = 1, .channel = 1}}};
  EXPECT_THROW(forecast(world), ProgramError);
}

}  // namespace
}  // namespace lockstep::tests
