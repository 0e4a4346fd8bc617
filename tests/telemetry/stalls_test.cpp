// Which ranks hang, by what they say of themselves: each row of the table in stalls.h, and who is a victim.
#include "telemetry/stalls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kNow = 1.7e9;

RankNow rank_that(DoingKind doing, double quiet, std::optional<double> usual = {}, int rank = 0) {
  return {.rank = rank,
          .pid = 100 + rank,
          .host = "a",
          .step = 17,
          .doing = doing,
          .action = doing == DoingKind::action ? "forward block.3" : "",
          .seconds = quiet,
          .time = kNow,
          .quiet = quiet,
          .usual = usual};
}

RankNow rank_in(const char* group, std::int64_t call, int rank, double quiet = 200, std::int64_t step = 17) {
  RankNow now = rank_that(DoingKind::call, quiet, {}, rank);
  now.group = group;
  now.op = "all_reduce";
  now.call = call;
  now.step = step;
  return now;
}

std::vector<int> stalled_among(const std::vector<RankNow>& ranks, const StallRules& rules = {}, double time = kNow) {
  std::vector<int> found;
  for (const StalledRank& rank : find_stalled(ranks, time, rules)) found.push_back(rank.rank);
  return found;
}

// The limit of a rank alone, found by asking: nothing below it, and a hang just above.
void expect_limit(DoingKind doing, std::optional<double> usual, double limit) {
  EXPECT_THAT(stalled_among({rank_that(doing, limit * 0.999, usual)}), IsEmpty()) << name_of(doing) << " " << limit;
  const auto found = find_stalled(std::vector{rank_that(doing, limit * 1.001, usual)}, kNow);
  ASSERT_EQ(found.size(), 1u) << name_of(doing) << " " << limit;
  EXPECT_EQ(found[0].limit, limit);
  EXPECT_FALSE(found[0].silent);
}

TEST(Stalls, HaveTheLimitsOfTheTable) {
  for (const DoingKind doing : {DoingKind::action, DoingKind::evaluating}) {
    expect_limit(doing, 0.2, 10);  // at least
    expect_limit(doing, 2, 10);
    expect_limit(doing, 2.5, 12.5);
    expect_limit(doing, 60, 300);  // actions of a minute are no hang
    expect_limit(doing, {}, 120);  // the first ones
  }
  expect_limit(DoingKind::between_steps, {}, 120);
  expect_limit(DoingKind::between_steps, 0.1, 120);
  expect_limit(DoingKind::between_steps, 60, 300);
  expect_limit(DoingKind::saving, 0.1, 120);
  expect_limit(DoingKind::saving, 60, 300);
  // Not judged: the first save of a large state, and what comes after the last step.
  for (const RankNow& now : {rank_that(DoingKind::saving, 1e6), rank_that(DoingKind::finishing, 1e6, 1),
                             rank_that(DoingKind::ended, 1e6, 1), rank_in("dp", 3, 0, 100)})
    EXPECT_THAT(stalled_among({now}), IsEmpty()) << name_of(now.doing);
}

TEST(Stalls, TakeTheLimitsThatAreGiven) {
  const StallRules rules{.least = 1, .times = 3, .unseen = 20};
  EXPECT_THAT(stalled_among({rank_that(DoingKind::action, 1.1, 0.1)}, rules), ElementsAre(0));
  EXPECT_THAT(stalled_among({rank_that(DoingKind::action, 1.4, 0.5)}, rules), IsEmpty());
  EXPECT_THAT(stalled_among({rank_that(DoingKind::action, 1.6, 0.5)}, rules), ElementsAre(0));
  EXPECT_THAT(stalled_among({rank_that(DoingKind::action, 21)}, rules), ElementsAre(0));
}

TEST(Stalls, AreJudgedByWhatMovedAndNotByHowLongARankIsThere) {
  RankNow now = rank_that(DoingKind::action, 2, 0.1);
  now.seconds = 500;  // in one long action, in which calls come and go
  EXPECT_THAT(stalled_among({now}), IsEmpty());
  now.quiet = 11;
  EXPECT_THAT(stalled_among({now}), ElementsAre(0));
}

TEST(Stalls, TimeThatHasPassedSinceARankSpokeSaysNothing) {
  EXPECT_THAT(stalled_among({rank_that(DoingKind::action, 1, 0.1)}, {}, kNow + 1e5), IsEmpty()) << "a slow disk";
  EXPECT_THAT(stalled_among({rank_that(DoingKind::action, 1, 0.1)}, {}, kNow - 1e5), IsEmpty()) << "a clock ahead";
  const StallRules rules{.silent = 30};
  EXPECT_THAT(stalled_among({rank_that(DoingKind::action, 1, 0.1)}, rules, kNow + 29), IsEmpty());
  const auto found = find_stalled(std::vector{rank_that(DoingKind::action, 1, 0.1)}, kNow + 31, rules);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].silent);
  EXPECT_EQ(to_text(found[0]),
            "rank 0 (process 100 on a) has said nothing for 31.0 s; it was in forward block.3 of step 17");
  EXPECT_THAT(stalled_among({rank_that(DoingKind::ended, 1)}, rules, kNow + 1e5), IsEmpty());
}

TEST(Stalls, WhoWaitsForAnotherIsAVictim) {
  // One computes, however long the others have waited: it may still come.
  EXPECT_THAT(
      stalled_among({rank_in("dp", 4, 0, 500), rank_that(DoingKind::action, 3, 1, 1), rank_in("dp", 4, 2, 500)}),
      IsEmpty());
  EXPECT_THAT(
      stalled_among({rank_in("dp", 4, 0, 500), rank_that(DoingKind::action, 30, 1, 1), rank_in("dp", 4, 2, 500)}),
      ElementsAre(1));
  EXPECT_THAT(stalled_among({rank_in("dp", 4, 0, 500), rank_that(DoingKind::saving, 50, {}, 1)}), IsEmpty());
}

TEST(Stalls, OfRanksThatAllWaitThoseThatAreBehindAreNamed) {
  EXPECT_THAT(stalled_among({rank_in("dp", 4, 0), rank_in("dp", 3, 1), rank_in("dp", 4, 2)}), ElementsAre(1));
  EXPECT_THAT(stalled_among({rank_in("dp", 4, 0), rank_in("dp", 9, 1, 200, 16), rank_in("dp", 3, 2)}), ElementsAre(1))
      << "an earlier step counts more than an earlier call";
  // Calls of other groups have numbers of their own.
  EXPECT_THAT(stalled_among({rank_in("dp", 4, 0), rank_in("pp", 3, 1)}), IsEmpty());
  // Not before all have waited long enough, and nobody where none is behind: messages were lost.
  EXPECT_THAT(stalled_among({rank_in("dp", 4, 0, 119), rank_in("dp", 3, 1)}), IsEmpty());
  EXPECT_THAT(stalled_among({rank_in("dp", 4, 0), rank_in("dp", 4, 1)}), IsEmpty());
  // Who has ended is not waited for.
  EXPECT_THAT(stalled_among({rank_in("dp", 4, 0), rank_in("dp", 3, 1), rank_that(DoingKind::ended, 1, {}, 2)}),
              ElementsAre(1));
}

TEST(Stalls, BeginWithTheOneThatIsMostBehind) {
  RankNow earlier = rank_that(DoingKind::action, 20, 0.1, 1);
  earlier.step = 16;
  EXPECT_THAT(
      stalled_among({rank_that(DoingKind::action, 90, 0.1, 0), earlier, rank_that(DoingKind::action, 95, 0.1, 2)}),
      ElementsAre(1, 2, 0));
}

TEST(Stalls, SayWhereTheRankIsAndForHowLong) {
  const auto found = find_stalled(std::vector{rank_that(DoingKind::action, 34, 0.21, 3)}, kNow);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(to_text(found[0]),
            "rank 3 (process 103 on a) has been in forward block.3 of step 17 for 34.0 s, which usually takes 210 ms");
  RankNow call = rank_in("dp", 41, 0);
  call.action = "backward block.3";
  EXPECT_EQ(place_text(call), "in all_reduce #41 of 'dp', in backward block.3 of step 17");
  EXPECT_EQ(place_text(rank_that(DoingKind::saving, 1)), "saving of step 17");
  EXPECT_EQ(place_text(rank_that(DoingKind::evaluating, 1)), "evaluating of step 17");
  EXPECT_EQ(place_text(rank_that(DoingKind::between_steps, 1)), "between two steps of step 17");
}

}  // namespace
}  // namespace lockstep::tests
