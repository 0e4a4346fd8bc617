// lockstep status, as a user runs it: of a run without launch, of one that is over, and of what is no run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/status_text.h"
#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Status, OfARunWithoutLaunchThatIsOver) {
  const TemporaryFolder folder;
  std::ofstream(folder / "tiny.toml") << tiny_run(6, 10);
  ASSERT_EQ(run_program({"train", folder / "tiny.toml", "--out", folder / "run", "--ranks", "3"}).code, 0);
  const Outcome outcome = run_program({"status", folder / "run"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("run: ended, step 6 of 6, loss "), HasSubstr("nobody restarts this run"),
                                 HasSubstr("in steps that count"), HasSubstr("ended\n"), Not(HasSubstr("epoch"))));
  const nlohmann::json json = nlohmann::json::parse(run_program({"status", folder / "run", "--json"}).out);
  EXPECT_EQ(json["state"], "ended");
  EXPECT_EQ(json["ranks"].size(), 3u);
  EXPECT_EQ(json["launch"]["goodput"]["lost_steps"], 0);
  // To watch a run that is over is to see it once.
  EXPECT_EQ(run_program({"status", folder / "run", "--watch"}).out.find("ended, step 6"),
            outcome.out.find("ended, step 6"));

  std::ofstream(folder / "run/launch.json") << "no";
  std::ofstream(folder / "run/ranks/rank-00001.now") << "no";
  const Outcome damaged = run_program({"status", folder / "run"});
  EXPECT_EQ(damaged.code, 0);
  EXPECT_THAT(damaged.out, HasSubstr("damaged  launch.json, ranks/rank-00001.now\n"));
}

TEST(Status, OfNoRunIsOneLine) {
  const TemporaryFolder folder;
  for (const std::string& path : {folder / "absent", folder.path().string(), std::string("/dev/null")}) {
    const Outcome outcome = run_program({"status", path});
    EXPECT_EQ(outcome.code, 4) << path;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("name a run folder")) << path;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(run_program({"status"}).code, 2);
}

TEST(Status, RangesOfRanks) {
  EXPECT_EQ(ranges_text({}), "");
  EXPECT_EQ(ranges_text({4}), "4");
  EXPECT_EQ(ranges_text({0, 1, 2, 3, 6}), "0-3, 6");
  EXPECT_EQ(ranges_text({0, 1, 5, 6, 7}), "0, 1, 5-7");
}

TEST(Status, WorkersThatWereLostAreALine) {
  StatusOfRun status;
  EXPECT_THAT(status_text(status), Not(HasSubstr("workers")));
  status.time = 112;
  status.health.workers = {.lost = 3, .joined = 1, .away = {0, 2}, .time = 100, .last = "worker 1 has joined"};
  EXPECT_THAT(status_text(status), HasSubstr("workers  lost 3 times, joined again once; away: the workers of ranks 0, "
                                             "2; 12.0 s ago: worker 1 has joined\n"));
  status.health.workers = {.lost = 1, .joined = 0, .away = {4}, .time = 100, .last = "worker 2 is lost: it ended"};
  EXPECT_THAT(status_text(status), HasSubstr("lost once, joined again never; away: the worker of rank 4; "));
}

TEST(Status, GoodputNamesWhereTheTimeWent) {
  EXPECT_EQ(goodput_text({.whole = 100, .steps = 90, .lost = 8, .recovery = 1.5, .other = 0.05}),
            "90.0% of 1:40 in steps that count; lost 8.0%, recovery 1.5%");
}

}  // namespace
}  // namespace lockstep::tests
