// What the leading agent decides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/led.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = Leader::Clock;

TEST(Leader, BeginsWhenAllHostsHaveComeAndTellsEachItsRanks) {
  Led run(2, 4);
  run.join(0);
  run.tick();
  EXPECT_TRUE(run.orders.empty());
  run.join(1);
  run.tick();
  ASSERT_EQ(run.orders.size(), 2u);
  EXPECT_EQ(run.orders[1].places, (std::vector<EpochOrder::Place>{{2, 0}, {3, 1}}));
  EXPECT_EQ(run.orders[1].master, "10.0.0.0");
  EXPECT_FALSE(run.orders[1].resumes);
  EXPECT_EQ(run.leader().phase(), Leader::Phase::running);
}

TEST(Leader, EndsWellWhenAllRanksHave) {
  Led run(2, 4);
  run.join_all(2);
  for (int rank = 0; rank < 4; ++rank) run.end(rank, 0);
  run.tick();
  EXPECT_TRUE(run.leader().over());
  EXPECT_EQ(run.leader().code(), 0);
}

// A disk that is full for a while costs that while, and not the run.
TEST(Leader, TriesAgainWhereTheRunFolderTakesNoEpoch) {
  Led run(2, 4);
  run.folder_full = true;
  run.join_all(2);
  run.tick(20);
  run.tick(20);
  EXPECT_TRUE(run.orders.empty());
  EXPECT_FALSE(run.leader().over());
  EXPECT_THAT(run.told, ::testing::ElementsAre("no space left; trying for 60 s"));
  run.folder_full = false;
  run.tick();
  EXPECT_EQ(run.orders.size(), 2u);
}

TEST(Leader, EndsWhereTheRunFolderTakesNoEpochForAMinute) {
  Led run(2, 4);
  run.folder_full = true;
  run.join_all(2);
  run.tick(61);
  EXPECT_TRUE(run.leader().over());
  EXPECT_EQ(run.leader().code(), 5);
  EXPECT_EQ(run.leader().reason(), "no space left");
}

// The leader was lost before it could tell of the epoch that it had begun: its run folder is there.
TEST(Leader, ResumesWhatALostLeaderHasJustBegun) {
  for (const std::uint32_t last : {0U, 1U}) {
    Led run(2, 4, {OnFault::restart, OnFault::wait}, 0, last);
    run.leader().inherit(Epoch{}, {0, 1});
    run.join_all(2);
    ASSERT_EQ(run.orders.size(), 2u);
    EXPECT_EQ(run.orders[1].resumes, last > 0);
    EXPECT_EQ(run.orders[1].epoch, last + 1);
  }
}

// A scheduler's script can tell a run that was stopped from one that is done.
TEST(Leader, ARunThatIsStoppedBeforeItsLastStepEndsWithTheCodeForThat) {
  for (const std::int64_t step : {0, 99, 100}) {
    Led run(2, 4, {OnFault::restart}, 75);
    run.join_all(2);
    run.step = step;
    run.leader().stop();
    run.tick();
    for (int rank = 0; rank < 4; ++rank) run.end(rank, 0);
    run.tick();
    ASSERT_TRUE(run.leader().over());
    EXPECT_EQ(run.leader().code(), step < 100 ? 75 : 0) << step;
  }
  Led failed(1, 2, {}, 75);  // of a fault it is not
  failed.join_all(1);
  failed.end(0, 128 + 9);
  failed.end_killed();
  failed.tick();
  ASSERT_TRUE(failed.leader().over());
  EXPECT_EQ(failed.leader().code(), 5);
}

TEST(Leader, ZeroIsBelievedOnlyOfARankThatHasComeToTheEndOfItsRun) {
  Led run(2, 4);
  run.join_all(2);
  run.step = 12;
  run.unfinished = {1};
  run.end(1, 0);
  for (const int rank : {0, 2, 3}) run.end(rank, 5);  // who waited for it
  run.tick();
  EXPECT_EQ(run.leader().epoch().number, 2u);
  EXPECT_THAT(run.decisions.at(0).fault,
              HasSubstr("rank 1 on host-0 has ended with exit code 0 before the end of its"));
  run.unfinished = {};
  for (int rank = 0; rank < 4; ++rank) run.end(rank, 0);
  run.tick();
  EXPECT_TRUE(run.leader().over());
  EXPECT_EQ(run.leader().code(), 0);
}

TEST(Leader, AKilledRankIsNamedTheOthersAreKilledAndAllResumeInTheNextEpoch) {
  Led run(2, 4);
  run.join_all(2);
  run.step = 12;
  run.end(3, 128 + 9);
  EXPECT_EQ(run.kills, 2);
  run.tick();
  EXPECT_EQ(run.leader().phase(), Leader::Phase::ending);
  run.end_killed();
  run.tick();
  EXPECT_EQ(run.leader().epoch().number, 2u);
  EXPECT_TRUE(run.orders[0].resumes);
  ASSERT_EQ(run.decisions.size(), 1u);
  EXPECT_EQ(run.decisions[0].decision, Decision::same);
  EXPECT_THAT(run.decisions[0].fault,
              AllOf(HasSubstr("rank 3 on host-1"), HasSubstr("signal 9"), HasSubstr("step 12")));
}

TEST(Leader, PutsAFaultDownToWhoWasSeenToFailOrElseToWhomTheEventsName) {
  struct Case {
    int ended, code;             // the rank that ends first, and how
    std::optional<int> named;    // by the events
    std::optional<int> culprit;  // that follows
  };
  for (const Case& c :
       {Case{1, 128 + 9, {}, 1}, Case{1, 128 + 9, 0, 1}, Case{1, 5, 0, 0}, Case{1, 5, {}, {}}, Case{1, 5, 77, {}}}) {
    Led run(1, 2);
    run.join_all(1);
    run.named = c.named;
    run.end(c.ended, c.code);
    run.end(1 - c.ended, 5);
    run.tick();
    ASSERT_EQ(run.decisions.size(), 1u);
    EXPECT_EQ(run.decisions[0].culprit, c.culprit) << c.code;
    const bool says_so = run.decisions[0].fault.find("because of rank 0") != std::string::npos;
    EXPECT_EQ(says_so, c.code == 5 && c.culprit.has_value()) << run.decisions[0].fault;
  }
}

TEST(Leader, RanksThatFailByThemselvesAreGivenAMomentAndNobodyIsBlamedUnlessTheEventsNameOne) {
  Led run(1, 2);
  run.join_all(1);
  run.step = 3;
  run.end(1, 5);
  EXPECT_EQ(run.kills, 0);
  run.tick(1);
  EXPECT_EQ(run.kills, 0);
  run.tick(1.5);
  EXPECT_EQ(run.kills, 1);
  run.end(0, 128 + 9, true);
  run.tick();
  EXPECT_EQ(run.leader().epoch().number, 2u);
}

TEST(Leader, ARankThatTheEventsNameTwiceIsReplacedByASpare) {
  Led run(1, 2);
  run.join(0, 3);
  run.tick();
  run.named = 1;
  for (int fault = 0; fault < 2; ++fault) {
    run.end(0, 5);
    run.end(1, 5);
    run.tick();
  }
  EXPECT_EQ(run.decisions.back().decision, Decision::spare);
  EXPECT_EQ(run.leader().epoch().slots, (std::vector<RankSlot>{{0, 0}, {0, 2}}));
}

TEST(Leader, AMistakeOfTheUsersEndsTheRunWithItsCode) {
  Led run(1, 2);
  run.join_all(1);
  run.end(0, 4);
  run.end(1, 4);
  run.tick();
  EXPECT_TRUE(run.leader().over());
  EXPECT_EQ(run.leader().code(), 4);
  EXPECT_EQ(run.leader().reason(), "");
}

TEST(Leader, AMistakeThatOneRankFindsEndsTheRunThoughAnotherWasTheFirstToFail) {
  Led run(2, 4);
  run.join_all(2);
  run.end(1, 5);
  run.end(0, 6);
  run.end_killed();
  run.tick();
  EXPECT_TRUE(run.leader().over());
  EXPECT_EQ(run.leader().code(), 6);
}

TEST(Leader, ALostHostIsReplacedOrTheRunShrinksAndGrowsBackWhenItReturns) {
  Led run(2, 4);
  run.join_all(2);
  run.step = 5;
  run.lose(1);
  EXPECT_EQ(run.kills, 1);  // the one that is left
  run.end(0, 128 + 9, true);
  run.end(1, 128 + 9, true);
  run.tick();
  EXPECT_EQ(run.decisions.back().decision, Decision::shrink);
  EXPECT_EQ(run.orders[0].layout.text, "dp=2");
  run.step = 9;
  run.join(1);
  run.tick();
  EXPECT_EQ(run.asks, 0);  // it must stay for a while
  run.tick(1.5);
  EXPECT_EQ(run.asks, 2);
  EXPECT_EQ(run.decisions.back().decision, Decision::grow);
  run.end(0, 0);
  run.end(1, 0);
  run.tick();
  EXPECT_EQ(run.leader().epoch().layout.ranks, 4);
  EXPECT_EQ(run.leader().phase(), Leader::Phase::running);
}

TEST(Leader, TheSmallSideOfASplitDecidesNothingAndWaits) {
  Led run(3, 6);
  run.join_all(3);
  run.lose(1);
  run.lose(2);
  run.end(0, 128 + 9, true);
  run.end(1, 128 + 9, true);
  run.tick();
  EXPECT_TRUE(run.decisions.empty());
  EXPECT_TRUE(run.leader().lacks_quorum());
  EXPECT_EQ(run.taken.size(), 1u);  // the first epoch alone
  run.tick(31);
  EXPECT_TRUE(run.leader().over());
  EXPECT_EQ(run.leader().code(), 5);
}

TEST(Leader, OfTwoHalvesTheOneThatTakesTheEpochContinues) {
  for (const bool first : {true, false}) {
    Led run(2, 4);
    run.join_all(2);
    if (!first) run.taken.insert(2);
    run.lose(1);
    run.end(0, 128 + 9, true);
    run.end(1, 128 + 9, true);
    run.tick();
    EXPECT_EQ(run.leader().deposed(), !first);
    EXPECT_EQ(run.leader().over(), !first);
  }
}

TEST(Leader, AHeirContinuesWithTheEpochThatFollows) {
  Led run(3, 4, {OnFault::restart, OnFault::spare, OnFault::shrink});
  run.leader().inherit(
      {.number = 7, .layout = {.ranks = 4}, .slots = {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, .resumes = true}, {0, 1, 2});
  run.join(1);
  run.tick();
  EXPECT_TRUE(run.orders.empty());  // one of three
  run.join(2);
  run.tick(4);
  EXPECT_EQ(run.leader().epoch().number, 8u);
  EXPECT_EQ(run.leader().epoch().slots, (std::vector<RankSlot>{{1, 0}, {1, 1}, {2, 0}, {2, 1}}));
  EXPECT_THAT(run.decisions.back().fault, HasSubstr("the leading agent is lost"));
}

TEST(Leader, AHangIsAFaultOfTheRankThatHangs) {
  Led run(1, 2);
  run.join_all(1);
  run.leader().stalled({.rank = 1, .found = "has been in forward block.3 for 40 s"}, Clock::now());
  EXPECT_EQ(run.kills, 1);
  run.end_killed();
  run.tick();
  EXPECT_THAT(run.decisions.back().fault, AllOf(HasSubstr("rank 1"), HasSubstr("forward block.3")));
  EXPECT_EQ(run.leader().epoch().number, 2u);
}

TEST(Leader, WhoIsAskedToStopAsksTheRanksOnceAndEndsWithThem) {
  Led run(1, 2);
  run.join_all(1);
  run.leader().stop();
  run.tick();
  run.tick();
  EXPECT_EQ(run.asks, 1);
  run.end(0, 0);
  run.end(1, 0);
  run.tick();
  EXPECT_TRUE(run.leader().over());
  EXPECT_EQ(run.leader().code(), 0);
}

TEST(Leader, NothingBeginsWhileSomebodyTrainsInTheFolder) {
  Led run(1, 2);
  run.folder_free = false;
  run.join_all(1);
  run.tick();
  EXPECT_TRUE(run.orders.empty());
  run.folder_free = true;
  run.tick();
  EXPECT_EQ(run.orders.size(), 1u);
}

TEST(Leader, WhoFindsThatAnotherTrainsInTheNextEpochStepsDownAtOnce) {
  Led run(2, 4);
  run.join_all(2);
  run.taken.insert(2);  // by the other, which trains there
  run.folder_free = false;
  run.lose(1);
  run.end_killed();
  run.tick();
  EXPECT_TRUE(run.leader().over());
  EXPECT_TRUE(run.leader().deposed());
}

TEST(Leader, ReportsOfAnOlderEpochAreIgnored) {
  Led run(1, 2);
  run.join_all(1);
  run.end(0, 128 + 9);
  run.end_killed();
  run.tick();
  ASSERT_EQ(run.leader().epoch().number, 2u);
  run.leader().ended(0, 1, {.rank = 1, .code = 128 + 9}, Clock::now());
  run.tick();
  EXPECT_EQ(run.leader().phase(), Leader::Phase::running);
}

TEST(Leader, AHostThatDoesNotComeIsNamed) {
  Led run(3, 6, {OnFault::restart});
  run.join(0);
  run.tick(11);
  EXPECT_TRUE(run.leader().over());
  EXPECT_EQ(run.leader().code(), 5);
  EXPECT_THAT(run.leader().reason(), HasSubstr("host 1 of the list, host 2 of the list are not"));
}

}  // namespace
}  // namespace lockstep::tests
