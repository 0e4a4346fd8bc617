// lockstep launch, as a user runs it: a run whose ranks are killed ends as one that never failed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "faulty_process/faulty_process.h"
#include "support/program.h"
#include "support/run_results.h"
#include "support/sanitizer.h"
#include "telemetry/process_state.h"
#include "telemetry/rank_now.h"

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Arguments = std::vector<std::string>;

class Launched : public ::testing::Test {
 protected:
  Launched() { std::ofstream(folder_ / "tiny.toml") << tiny_run(6, 10); }

  Arguments arguments(const std::string& command, const std::string& out, const Arguments& more = {}) const {
    Arguments all{command, folder_ / "tiny.toml",    "--out", folder_ / out,         "--set", "model.preset=llama-1m",
                  "--set", "train.steps=1200",       "--set", "train.save_every=20", "--set", "train.eval_every=0",
                  "--set", "optim.schedule=constant"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::optional<RankNow> now(const std::string& out, int rank) const {
    return read_rank_now(folder_ / fmt::format("{}/ranks/rank-{:05}.now", out, rank));
  }
  // A process of the rank that is at work, and not one of `others`.
  pid_t wait_for_rank(const std::string& out, int rank, const std::vector<pid_t>& others = {}) const {
    for (int i = 0; i < 600; ++i, std::this_thread::sleep_for(50ms)) {
      const auto found = now(out, rank);
      if (!found || found->doing == DoingKind::ended || found->step < kSaved) continue;
      const auto pid = static_cast<pid_t>(found->pid);
      if (std::ranges::count(others, pid) == 0 && process_state(found->host, pid) == ProcessState::running) return pid;
    }
    ADD_FAILURE() << "rank " << rank << " of " << out << " has not begun";
    return -1;
  }
  std::string events(const std::string& out) const { return text_of(folder_ / (out + "/events.jsonl")); }

  static constexpr std::int64_t kSaved = 45;  // a step at which the second checkpoint is done or under way
  TemporaryFolder folder_;
};

class LaunchedKinds : public Launched, public ::testing::WithParamInterface<Arguments> {};

TEST_P(LaunchedKinds, RanksThatAreKilledContinueWithTheBitsOfAnUnbrokenRun) {
  const Arguments layout = GetParam();
  Arguments with_layout = layout;
  std::erase(with_layout, "--mpirun");
  ASSERT_EQ(run_program(arguments("train", "unbroken", with_layout)).code, 0);
  Outcome outcome;
  std::vector<pid_t> killed;
  {
    Program launch(arguments("launch", "broken", layout));
    for (int fault = 0; fault < 2; ++fault) {
      const pid_t pid = wait_for_rank("broken", fault, killed);
      if (pid < 0) break;
      ::kill(pid, SIGKILL);
      for (int rank = 0; rank < 3; ++rank)
        if (const auto last = now("broken", rank)) killed.push_back(static_cast<pid_t>(last->pid));
    }
    outcome = launch.wait();
  }
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("restart 1 of at most 10"), HasSubstr("restart 2 of at most 10")));
  EXPECT_THAT(events("broken"), AllOf(HasSubstr(R"("kind":"restart")"), HasSubstr("signal 9")));
  EXPECT_THAT(text_of(folder_ / "broken/log.txt"), HasSubstr("resuming from "));
  EXPECT_EQ(results_in(folder_ / "broken"), results_in(folder_ / "unbroken"));
}

INSTANTIATE_TEST_SUITE_P(Ranks, LaunchedKinds,
                         ::testing::Values(Arguments{"--layout", "dp=3,zero=2"}, Arguments{"--layout", "pp=2,micro=3"}
#ifdef LOCKSTEP_LAUNCHES_MPI
                                           ,
                                           Arguments{"--layout", "dp=3", "--mpirun"}
#endif
                                           ));

TEST_F(Launched, AStoppedRankIsNamedAndTheRunRestarts) {
  Program launch(arguments("launch", "run", {"--set", "train.steps=1000000"}));
  const pid_t pid = wait_for_rank("run", 0);
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGSTOP);
  EXPECT_GT(wait_for_rank("run", 0, {pid}), 0);
  launch.signal(SIGTERM);
  const Outcome outcome = launch.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(fmt::format("rank 0 (process {}) has been stopped for ", pid)));
}

TEST_F(Launched, ASignalIsHandedOnAndEndsBothAfterASave) {
  Program launch(arguments("launch", "run", {"--set", "train.steps=1000000", "--set", "train.save_every=0"}));
  const pid_t pid = wait_for_rank("run", 0);
  ASSERT_GT(pid, 0);
  launch.signal(SIGTERM);
  const Outcome outcome = launch.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("restart")));
  EXPECT_THAT(text_of(folder_ / "run/log.txt"), AllOf(HasSubstr("checkpoint saved"), HasSubstr("by SIGTERM")));
}

TEST_F(Launched, RanksEndWithASaveWhenTheirAgentIsKilled) {
  Program launch(arguments("launch", "run", {"--set", "train.steps=1000000", "--set", "train.save_every=0"}));
  ASSERT_GT(wait_for_rank("run", 0), 0);
  launch.signal(SIGKILL);
  launch.wait();
  for (int i = 0; i < 200 && lock_is_held(folder_ / "run/.lock").value_or(false); ++i)
    std::this_thread::sleep_for(50ms);
  EXPECT_THAT(text_of(folder_ / "run/log.txt"), AllOf(HasSubstr("checkpoint saved"), HasSubstr("by SIGTERM")));
}

TEST_F(Launched, ASparePlaceOfTheHostTakesOverWithTheSameBits) {
  const Arguments layout{"--layout", "dp=2,zero=1", "--set", "train.steps=120"};
  ASSERT_EQ(run_program(arguments("train", "unbroken", layout)).code, 0);
  Arguments more = layout;
  more.insert(more.end(), {"--processes", "--spares", "1", "--on-fault", "spare"});
  Program launch(arguments("launch", "run", more));
  const pid_t pid = wait_for_rank("run", 1);
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
  const Outcome outcome = launch.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("a spare takes its place"));
  EXPECT_EQ(results_in(folder_ / "run"), results_in(folder_ / "unbroken"));
}

TEST_F(Launched, AFaultBeforeTheFirstCheckpointStaysInTheEvents) {
  Program launch(arguments("launch", "run", {"--set", "train.steps=1000000", "--set", "train.save_every=0"}));
  const pid_t pid = wait_for_rank("run", 0);
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
  EXPECT_GT(wait_for_rank("run", 0, {pid}), 0);
  EXPECT_THAT(events("run"), HasSubstr("signal 9"));
  launch.signal(SIGTERM);
  EXPECT_EQ(launch.wait().code, 0);
}

// exit(0) in the middle, from a thread of a library that is loaded before others.
TEST_F(Launched, AProcessThatEndsWithZeroBeforeItsTimeStartsAgain) {
  if (kUnderSanitizer) GTEST_SKIP() << "a sanitizer wants to be loaded before the library with the faults";
  const std::string library = std::filesystem::path(LOCKSTEP_BINARY).parent_path() / "libfaulty_process.so";
  Program launch(arguments("launch", "run", {"--set", "train.steps=1000000"}), "/",
                 {"env", "LD_PRELOAD=" + library, "FAULTY_PROCESS=" + (folder_ / "controls")});
  const pid_t pid = wait_for_rank("run", 0);
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGRTMIN + kExitZero);
  EXPECT_GT(wait_for_rank("run", 0, {pid}), 0);
  launch.signal(SIGTERM);
  const Outcome outcome = launch.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("rank 0 has ended with exit code 0 before the end of its run"));
}

TEST_F(Launched, AFaultBeyondTheLastRestartEndsTheRunWithItsReason) {
  Program launch(arguments("launch", "run", {"--set", "train.steps=1000000", "--restarts", "0"}));
  const pid_t pid = wait_for_rank("run", 0);
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGSEGV);
  const Outcome outcome = launch.wait();
  EXPECT_EQ(outcome.code, 5);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("signal 11"), HasSubstr("restarted 0 times"), HasSubstr("--resume")));
  EXPECT_THAT(events("run"), AllOf(HasSubstr(R"("kind":"fault")"), HasSubstr("signal 11")));
}

TEST_F(Launched, MistakesEndItAtOnceAsTheyEndTrain) {
  const std::string file = folder_ / "tiny.toml";
  for (const Arguments& wrong :
       {Arguments{"launch", folder_ / "none.toml"}, Arguments{"launch", file, "--restarts", "-1"},
        Arguments{"launch", file, "--set", "train.stepz=1"}, Arguments{"launch", file, "--resume", "--overwrite"}}) {
    const Outcome outcome = run_program(wrong);
    EXPECT_EQ(outcome.code, 2) << wrong.back();
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("restart 1")));
  }
}

TEST_F(Launched, ResumesAFolderWithoutItsRunFileBesideIt) {
  ASSERT_EQ(run_program(arguments("launch", "run", {"--set", "train.steps=20", "--set", "data.seq=8"})).code, 0);
  std::filesystem::remove(folder_ / "tiny.toml");
  for (const Arguments& kind : {Arguments{}, Arguments{"--processes", "--layout", "dp=2"}}) {
    Arguments resume{"launch", "--resume", folder_ / "run", "--set",
                     kind.empty() ? "train.steps=25" : "train.steps=30"};
    resume.insert(resume.end(), kind.begin(), kind.end());
    const Outcome more = run_program(resume);
    EXPECT_EQ(more.code, 0) << more.err;
  }
  EXPECT_THAT(text_of(folder_ / "run/metrics.jsonl"), HasSubstr("\"step\":30"));
}

TEST_F(Launched, OfTwoOnOneFolderTheSecondIsRefused) {
  Program launch(arguments("launch", "run", {"--set", "train.steps=1000000"}));
  ASSERT_GT(wait_for_rank("run", 0), 0);
  const Outcome second = run_program(arguments("launch", "run", {"--resume"}));
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err, HasSubstr("another launch is at work in"));
  launch.signal(SIGTERM);
  EXPECT_EQ(launch.wait().code, 0);
}

}  // namespace
}  // namespace lockstep::tests
