// Workers of an asynchronous run are killed, under `lockstep launch`: the others go on, and they come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "support/program.h"
#include "support/run_results.h"
#include "support/worker_kills.h"

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Arguments = std::vector<std::string>;

TEST(LaunchedWorkers, ThatAreKilledStopNobodyElse) {
  EXPECT_THAT(kill_workers({.layout = "dp=3,dp_kind=server,servers=1", .kills = 5}), IsEmpty());
}

class Workers : public ::testing::Test {
 protected:
  Workers() { std::ofstream(folder_ / "tiny.toml") << tiny_run(12, 20); }
  Arguments launch(const std::string& layout, const Arguments& more = {}) const {
    Arguments all{"launch", folder_ / "tiny.toml", "--out", out(), "--processes", "--layout", layout};
    for (const char* set : {"sync.kind=async", "train.save_every=20", "train.eval_every=0", "optim.schedule=constant"})
      all.insert(all.end(), {"--set", set});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string out() const { return folder_ / "run"; }
  std::string text(const std::string& name) const { return text_of(out() + "/" + name); }
  std::int64_t steps() const { return std::ranges::count(text("metrics.jsonl"), '\n'); }
  void wait_for_steps(std::int64_t count) const {
    for (int i = 0; i < 6000 && steps() < count; ++i) std::this_thread::sleep_for(5ms);
    ASSERT_GE(steps(), count);
  }
  TemporaryFolder folder_;
};

// As any rank is: all start again from the newest checkpoint, in its layout.
TEST_F(Workers, StartAgainWithTheirServerWhenThatIsKilled) {
  Program run(launch("dp=2,dp_kind=server,servers=1", {"--set", "train.steps=1000000"}));
  wait_for_steps(60);
  ASSERT_TRUE(signal_rank(run.pid(), 2, SIGKILL));
  for (int i = 0; i < 4000 && text("events.jsonl").find(R"("kind":"restart")") == std::string::npos; ++i)
    std::this_thread::sleep_for(5ms);
  run.signal(SIGTERM);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("rank 2 was ended by signal 9"), HasSubstr("restart 1 of at most 10")));
  EXPECT_THAT(text("log.txt"), HasSubstr("resuming from "));
}

// Both come back, while the servers wait for them.
TEST_F(Workers, ThatAreAllKilledAtOnceComeBack) {
  Program run(launch("dp=2,dp_kind=server,servers=1", {"--set", "train.steps=1000000"}));
  wait_for_steps(30);
  for (const int rank : {0, 1}) ASSERT_TRUE(signal_rank(run.pid(), rank, SIGKILL));
  wait_for_steps(steps() + 30);
  run.signal(SIGTERM);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("worker 0 starts again"), Not(HasSubstr("same ranks start again"))));
}

// Who may not start again stays away; when nobody is left it is a fault of the run.
TEST_F(Workers, OfWhichNoneMayStartAgainEndTheRunWithTheLast) {
  Program run(launch("dp=2,dp_kind=server,servers=1", {"--set", "train.steps=1000000", "--restarts", "0"}));
  wait_for_steps(30);
  ASSERT_TRUE(signal_rank(run.pid(), 0, SIGKILL));
  wait_for_steps(steps() + 20);
  ASSERT_TRUE(signal_rank(run.pid(), 1, SIGKILL));
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.code, 5);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("worker 0 stays away"), HasSubstr("rank 1 was ended by signal 9")));
}

}  // namespace
}  // namespace lockstep::tests
