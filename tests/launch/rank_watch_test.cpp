// Whose files count: those of the processes of this epoch, and of a rank's last process, whatever the calendar says.
#include "launch/rank_watch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "launch/clock.h"
#include "support/program.h"
#include "telemetry/step_record.h"

namespace lockstep::tests {
namespace {

class RankFiles : public ::testing::Test {
 protected:
  RankFiles() { std::filesystem::create_directories(folder_.path() / "ranks"); }
  void write(const RankNow& now) const {
    std::ofstream(folder_.path() / fmt::format("ranks/rank-{:05}.now", now.rank)) << to_json_line(now);
  }
  void write(int rank, std::int64_t pid, double time, DoingKind doing) const {
    write({.rank = rank, .pid = pid, .host = "a", .doing = doing, .time = time});
  }
  // Nothing has moved for a minute where it takes a tenth of a second.
  void write_hung(int rank, std::int64_t pid, double time, std::int64_t step) const {
    write({.rank = rank,
           .pid = pid,
           .host = "a",
           .step = step,
           .doing = DoingKind::action,
           .action = "forward block.0",
           .seconds = 60,
           .time = time,
           .quiet = 60,
           .usual = 0.1});
  }

  TemporaryFolder folder_;
  RankWatch watch_{folder_.path(), {}};
};

TEST_F(RankFiles, OfAProcessThatWasNotThereCountThoughTheCalendarWentBack) {
  const double now = seconds_since_1970();
  write(0, 10, now - 50, DoingKind::ended);
  watch_.epoch_began(1);
  EXPECT_FALSE(watch_.is_unfinished(0)) << "of the epoch before";
  write(0, 11, now - 1000, DoingKind::action);
  EXPECT_TRUE(watch_.is_unfinished(0));
  EXPECT_TRUE(watch_.is_unfinished(std::nullopt));
  write(0, 11, now - 999, DoingKind::ended);
  EXPECT_FALSE(watch_.is_unfinished(0));
}

TEST_F(RankFiles, OfTheEpochBeforeDoNotCount) {
  write(0, 10, seconds_since_1970() - 1, DoingKind::action);
  watch_.epoch_began(1);
  EXPECT_FALSE(watch_.is_unfinished(0));
  write(0, 10, seconds_since_1970() + 1, DoingKind::action);
  EXPECT_TRUE(watch_.is_unfinished(0)) << "a process that has the number of the one before";
}

// What is being saved may yet be lost.
TEST_F(RankFiles, OfARankThatSavesItsLastStateAreOfOneThatIsUnfinished) {
  watch_.epoch_began(1);
  write(0, 10, seconds_since_1970() + 1, DoingKind::finishing);
  EXPECT_TRUE(watch_.is_unfinished(0));
}

// A worker that hung, was killed and stays away: rank 0. It is the one most behind for ever.
TEST_F(RankFiles, OfAWorkerThatIsPutDownHideNobodyElsesHang) {
  watch_.epoch_began(2);
  const double now = seconds_since_1970();
  write_hung(0, 10, now, 1);
  write_hung(1, 11, now, 2);
  watch_.ranks_went({0});
  write_hung(0, 10, now + 1, 1);  // before its host has killed it
  const auto hung = watch_.look();
  ASSERT_TRUE(hung);
  EXPECT_EQ(hung->rank, 1);
  EXPECT_FALSE(watch_.is_unfinished(0));
}

TEST_F(RankFiles, OfTheProcessThatHungDoNotCountForTheOneThatTakesItsPlace) {
  for (const double ahead : {0, 100}) {  // the clock of its host
    watch_.epoch_began(2);
    const double now = seconds_since_1970() + ahead;
    write_hung(0, 10, now, 1);
    write(1, 11, now, DoingKind::action);
    EXPECT_TRUE(watch_.is_unfinished(0));
    watch_.ranks_went({0});
    watch_.ranks_came({0});
    EXPECT_FALSE(RankWatch(watch_).look()) << "a copy, which has not looked in this second";
    EXPECT_FALSE(watch_.is_unfinished(0));
    write_hung(0, 10, now + 1, 1);
    EXPECT_TRUE(watch_.is_unfinished(0)) << "a process that has the number of the one before";
    write_hung(0, 12, now, 1);
    const auto hung = RankWatch(watch_).look();
    ASSERT_TRUE(hung);
    EXPECT_EQ(hung->rank, 0);
  }
}

// The new process of rank 0 sets up, and has written nothing.
TEST_F(RankFiles, AHangIsFoundWhileAWorkerComesBackAndNobodyIsNamedWhoMayWaitForIt) {
  watch_.epoch_began(3);
  const double now = seconds_since_1970();
  const auto waits = [&](int rank, std::int64_t step) {
    write({.rank = rank,
           .pid = 10 + rank,
           .host = "a",
           .step = step,
           .doing = DoingKind::call,
           .group = "dp",
           .op = "all_reduce",
           .call = 1,
           .seconds = 200,
           .time = now,
           .quiet = 200});
  };
  write_hung(0, 10, now, 1);
  waits(1, 2);
  waits(2, 3);
  watch_.ranks_went({0});
  watch_.ranks_came({0});
  EXPECT_FALSE(RankWatch(watch_).look());
  write_hung(2, 12, now, 3);
  const auto hung = watch_.look();
  ASSERT_TRUE(hung);
  EXPECT_EQ(hung->rank, 2);
}

}  // namespace
}  // namespace lockstep::tests
