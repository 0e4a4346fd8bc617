// Whose files count: those of the processes of this epoch, whatever the calendar says.
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
  void write(int rank, std::int64_t pid, double time, DoingKind doing) const {
    std::ofstream(folder_.path() / fmt::format("ranks/rank-{:05}.now", rank))
        << to_json_line({.rank = rank, .pid = pid, .host = "a", .doing = doing, .time = time});
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

}  // namespace
}  // namespace lockstep::tests
