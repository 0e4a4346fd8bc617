// What the leading agent decides, on a clock of the test's own.
#include "launch/leader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = Leader::Clock;

std::optional<LaunchLayout> any(int slots) {
  if (slots < 1) return std::nullopt;
  return LaunchLayout{.ranks = slots, .text = "dp=" + std::to_string(slots)};
}

// Agents of two slots each, and what the leader has them do.
class Led {
 public:
  explicit Led(int agents, int ranks,
               std::vector<OnFault> rules = {OnFault::restart, OnFault::spare, OnFault::shrink, OnFault::wait},
               int stopped_code = 0, std::uint32_t last_epoch = 0, LaunchWorkers workers = {}, int most_restarts = 10)
      : leader_({.plan = {.wanted = {.ranks = ranks}, .rules = std::move(rules), .layouts = any},
                 .agents = agents,
                 .most_restarts = most_restarts,
                 .last_epoch = last_epoch,
                 .start_seconds = 10,
                 .wait_seconds = 30,
                 .grow_after_seconds = 1,
                 .steps = 100,
                 .stopped_code = stopped_code,
                 .workers = [workers](const LaunchLayout&) { return workers; }},
                hands(), now_) {}

  void join(int agent, int slots = 2) {
    leader_.joined(
        agent, {.name = "host-" + std::to_string(agent), .address = "10.0.0." + std::to_string(agent), .slots = slots},
        now_);
  }
  void join_all(int agents) {
    for (int agent = 0; agent < agents; ++agent) join(agent);
    tick();
  }
  void tick(double seconds = 0.05) {
    now_ += std::chrono::milliseconds(static_cast<int>(seconds * 1000));
    leader_.tick(now_);
  }
  void end(int rank, int code, bool killed = false) {
    leader_.ended(leader_.epoch().slots[static_cast<std::size_t>(rank)].agent, leader_.epoch().number,
                  {.rank = rank, .code = code, .killed = killed}, now_);
  }
  // Every rank that still runs is reported as killed, as agents do when they are told to.
  void end_killed() {
    for (int rank = 0; rank < static_cast<int>(leader_.epoch().slots.size()); ++rank) end(rank, 128 + 9, true);
  }
  void lose(int agent) { leader_.lost(agent, "silent", now_); }
  Leader& leader() { return leader_; }

  std::map<int, EpochOrder> orders;                 // the last of each agent
  std::vector<std::pair<int, EpochOrder>> started;  // all of them
  std::set<int> killed;                             // by kill_ranks
  std::set<int> away;                               // ranks that went and have not come
  int kills = 0, asks = 0;
  std::set<std::uint32_t> taken;  // by others
  bool folder_free = true, folder_full = false;
  std::int64_t step = 0;
  std::optional<int> named;
  std::set<int> unfinished;  // ranks, though they have ended
  std::vector<Leader::Hands::Decided> decisions;
  std::vector<std::string> told;

 private:
  Leader::Hands hands() {
    return {.start =
                [this](int agent, const EpochOrder& order) {
                  for (const EpochOrder::Place& place : order.places)
                    EXPECT_FALSE(away.contains(place.rank)) << "its file may be a new one's already";
                  orders[agent] = order;
                  started.emplace_back(agent, order);
                },
            .ask_to_end = [this](int) { ++asks; },
            .kill = [this](int) { ++kills; },
            .kill_ranks = [this](int, const std::set<int>& ranks) { killed.insert(ranks.begin(), ranks.end()); },
            .ranks_went = [this](const std::set<int>& ranks) { away.insert(ranks.begin(), ranks.end()); },
            .ranks_came =
                [this](const std::set<int>& ranks) {
                  for (const int rank : ranks) away.erase(rank);
                },
            .take_epoch =
                [this](std::uint32_t epoch) {
                  if (folder_full) throw EnvironmentError("no space left");
                  away.clear();
                  return taken.insert(epoch).second;
                },
            .epoch_is_taken = [this](std::uint32_t epoch) { return taken.contains(epoch); },
            .folder_is_free = [this] { return folder_free; },
            .last_step = [this] { return step; },
            .blamed_rank = [this] { return named; },
            .is_unfinished =
                [this](std::optional<int> rank) { return rank ? unfinished.contains(*rank) : !unfinished.empty(); },
            .tell = [this](const std::string& message) { told.push_back(message); },
            .decided = [this](const Leader::Hands::Decided& decided) { decisions.push_back(decided); }};
  }
  Clock::time_point now_ = Clock::now();
  Leader leader_;
};

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

// Three workers of two ranks each, and a row of servers, on four hosts of two slots.
Led with_workers(int most_restarts = 10) {
  return Led(4, 8, {OnFault::restart, OnFault::wait}, 0, 0, {.count = 3, .line = 2}, most_restarts);
}

TEST(LeaderOfWorkers, StartsAloneTheOneThatFails) {
  Led run = with_workers();
  run.join_all(4);
  ASSERT_EQ(run.started.size(), 4u);
  for (const auto& [agent, order] : run.started) EXPECT_FALSE(order.joins);
  run.started.clear();
  run.end(2, 128 + 9);
  EXPECT_EQ(run.killed, (std::set<int>{3})) << "the rest of it";
  EXPECT_TRUE(run.started.empty()) << "while some of it runs";
  run.end(3, 128 + 9, true);
  ASSERT_EQ(run.started.size(), 1u);
  EXPECT_TRUE(run.started[0].second.joins);
  EXPECT_EQ(run.started[0].second.epoch, run.leader().epoch().number);
  EXPECT_EQ(run.started[0].second.places, (std::vector<EpochOrder::Place>{{2, 0}, {3, 1}}));
  EXPECT_EQ(run.kills, 0);
  EXPECT_EQ(run.leader().phase(), Leader::Phase::running);
  ASSERT_EQ(run.decisions.size(), 1u);
  EXPECT_EQ(run.decisions[0].decision, Decision::go_on);
  EXPECT_EQ(run.decisions[0].culprit, 2);
}

TEST(LeaderOfWorkers, RestartsAllForAServerOrTheLastWorker) {
  Led server = with_workers();
  server.join_all(4);
  server.end(6, 128 + 9);
  EXPECT_GT(server.kills, 0);
  EXPECT_EQ(server.leader().phase(), Leader::Phase::ending);
  Led last = with_workers(0);
  last.join_all(4);
  for (const int rank : {0, 2}) {
    last.end(rank, 128 + 9);
    last.end(rank + 1, 128 + 9, true);
    EXPECT_EQ(last.leader().phase(), Leader::Phase::running);
  }
  EXPECT_EQ(last.started.size(), 4u) << "none may start again";
  last.end(4, 128 + 9);
  EXPECT_GT(last.kills, 0);
}

// A mistake that a new start would repeat.
TEST(LeaderOfWorkers, LeavesAwayOneWhoseStartWouldNotHelp) {
  Led run = with_workers();
  run.join_all(4);
  run.end(0, 4);
  run.end(1, 128 + 9, true);
  EXPECT_EQ(run.started.size(), 4u);
  EXPECT_EQ(run.leader().phase(), Leader::Phase::running);
  EXPECT_THAT(run.told.back(), HasSubstr("worker 0 stays away"));
}

TEST(LeaderOfWorkers, StartsThoseOfALostHostWhenItIsBack) {
  Led run = with_workers();
  run.join_all(4);
  run.lose(1);
  EXPECT_EQ(run.kills, 0);
  EXPECT_EQ(run.started.size(), 4u);
  run.join(1);
  run.tick();
  ASSERT_EQ(run.started.size(), 5u);
  EXPECT_EQ(run.started[4].first, 1);
  EXPECT_TRUE(run.started[4].second.joins);
  run.lose(3);  // the servers'
  EXPECT_GT(run.kills, 0);
}

// What they have written of themselves says nothing any more, whether they had ended, are killed, or are lost.
TEST(LeaderOfWorkers, TellsOfAllRanksOfOneThatGoesAndComesBack) {
  Led run = with_workers();
  run.join_all(4);
  EXPECT_TRUE(run.away.empty());
  run.leader().stalled({.rank = 3, .found = "has been in forward block.3 for 40 s"}, Clock::now());
  EXPECT_EQ(run.away, (std::set<int>{2, 3}));
  run.end(3, 128 + 9, true);
  EXPECT_EQ(run.away, (std::set<int>{2, 3})) << "while some of it runs";
  run.end(2, 128 + 9, true);
  EXPECT_TRUE(run.away.empty());
  EXPECT_EQ(run.started.size(), 5u);
  run.end(4, 4);  // and stays away
  EXPECT_EQ(run.away, (std::set<int>{4, 5}));
  run.lose(0);
  EXPECT_EQ(run.away, (std::set<int>{0, 1, 4, 5}));
}

// It misses servers that have ended, of which nothing has been heard yet; all others have come to the end of the run.
TEST(LeaderOfWorkers, OneThatFailsAsTheRunEndsIsNoFaultOfTheRun) {
  for (const bool host : {false, true}) {
    Led run = with_workers();
    run.join_all(4);
    run.step = 100;
    for (const int rank : {0, 1, 4, 5}) run.end(rank, 0);
    if (host)
      run.lose(1);
    else
      run.end(2, 5);
    EXPECT_EQ(run.leader().phase(), Leader::Phase::running);
    EXPECT_EQ(run.kills, 0);
    if (!host) run.end(3, 128 + 9, true);
    for (const int rank : {6, 7}) run.end(rank, 0);
    run.tick();
    run.tick(3);
    for (const int rank : {2, 3}) run.end(rank, 5);  // which had been started again
    run.tick();
    EXPECT_TRUE(run.leader().over());
    EXPECT_EQ(run.leader().code(), 0);
  }
}

// Ended by something else than the run's end, they do not count: nobody is left.
TEST(LeaderOfWorkers, RestartsAllWhereTheOthersOnlySeemToHaveEndedWell) {
  Led run = with_workers(0);
  run.join_all(4);
  run.unfinished = {0, 4};
  for (const int rank : {0, 4}) {
    run.end(rank, 0);
    run.end(rank + 1, 128 + 9, true);
  }
  EXPECT_EQ(run.leader().phase(), Leader::Phase::running);
  run.end(2, 5);
  EXPECT_EQ(run.leader().phase(), Leader::Phase::ending);
}

TEST(LeaderOfWorkers, EndsWhenTheServersHave) {
  Led run = with_workers();
  run.join_all(4);
  run.step = 100;
  run.end(2, 128 + 9);
  run.end(3, 128 + 9, true);  // and starts again, too late to be let go
  for (const int rank : {0, 1, 4, 5, 6, 7}) run.end(rank, 0);
  run.tick();
  EXPECT_FALSE(run.leader().over());
  run.tick(3);
  EXPECT_EQ(run.killed, (std::set<int>{2, 3}));
  run.end(2, 5);
  run.end(3, 128 + 9, true);
  run.tick();
  EXPECT_TRUE(run.leader().over());
  EXPECT_EQ(run.leader().code(), 0);
}

}  // namespace
}  // namespace lockstep::tests
