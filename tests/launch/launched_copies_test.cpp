// State that survives without a disk: ranks that are killed at any moment lose at most train.copy_every steps.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <thread>

#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/process_state.h"
#include "telemetry/rank_now.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Arguments = std::vector<std::string>;

// Runs that save to the disk at their end alone.
class LaunchedCopies : public ::testing::Test {
 protected:
  LaunchedCopies() {
    std::ofstream(folder_ / "tiny.toml") << tiny_run(6, 10);
    std::string name = "/dev/shm/lockstep-test-XXXXXX";
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    memory_ = name;
  }
  ~LaunchedCopies() override { fs::remove_all(memory_); }

  Arguments arguments(const std::string& command, const std::string& out, const Arguments& more = {}) const {
    Arguments all{command, folder_ / "tiny.toml", "--out", folder_ / out,        "--set", "model.preset=llama-1m",
                  "--set", "train.save_every=0",  "--set", "train.eval_every=0", "--set", "optim.schedule=constant"};
    if (command == "launch") all.insert(all.end(), {"--memory", memory_.string()});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::optional<RankNow> now(const std::string& out, int rank) const {
    return read_rank_now(folder_ / fmt::format("{}/ranks/rank-{:05}.now", out, rank));
  }
  // A process of the rank that has passed this step, and is not one of `others`.
  pid_t wait_for(const std::string& out, int rank, std::int64_t step, const std::vector<pid_t>& others = {}) const {
    for (int i = 0; i < 1200; ++i, std::this_thread::sleep_for(25ms)) {
      const auto found = now(out, rank);
      if (!found || found->doing == DoingKind::ended || found->step < step) continue;
      const auto pid = static_cast<pid_t>(found->pid);
      if (std::ranges::count(others, pid) == 0 && process_state(found->host, pid) == ProcessState::running) return pid;
    }
    ADD_FAILURE() << "rank " << rank << " of " << out << " has not reached step " << step;
    return -1;
  }
  std::ptrdiff_t left_in_memory() const {
    return std::distance(fs::directory_iterator(memory_), fs::directory_iterator());
  }
  // Of each restart: the last step that was completed, and the one whose copy was resumed from.
  struct Loss {
    std::int64_t done, resumed;
  };
  std::vector<Loss> losses(const std::string& out, const std::string& err) const {
    std::vector<Loss> all;
    std::istringstream lines(err);
    for (std::string line; std::getline(lines, line);)
      if (const auto at = line.find(" after step "); at != std::string::npos && line.find("restart ") != line.npos)
        all.push_back({std::stoll(line.substr(at + 12)), 0});
    std::ifstream log(folder_ / (out + "/log.txt"));
    auto next = all.begin();
    for (std::string line; std::getline(log, line) && next != all.end();)
      if (const auto at = line.find("resuming from "); at != std::string::npos) {
        EXPECT_THAT(line, HasSubstr(memory_.string()));
        (next++)->resumed = std::stoll(line.substr(line.rfind("step-") + 5));
      }
    EXPECT_EQ(next, all.end());
    return all;
  }

  TemporaryFolder folder_;
  fs::path memory_;
};

class LaunchedCopiesKinds : public LaunchedCopies, public ::testing::WithParamInterface<Arguments> {};

TEST_P(LaunchedCopiesKinds, KilledAtAnyMomentTheRunLosesAtMostThoseStepsAndEndsWithTheBitsOfAnUnbrokenOne) {
  const std::int64_t every = 2;
  const Arguments layout = GetParam();
  Arguments with_layout = layout;
  std::erase(with_layout, "--mpirun");
  std::erase(with_layout, "--processes");
  const Arguments steps{"--set", "train.steps=1200", "--set", fmt::format("train.copy_every={}", every)};
  with_layout.insert(with_layout.end(), steps.begin(), steps.end());
  ASSERT_EQ(run_program(arguments("train", "unbroken", with_layout)).code, 0);
  Outcome outcome;
  constexpr int kFaults = 4;
  std::mt19937 random(7);
  {
    Arguments launched = layout;
    launched.insert(launched.end(), steps.begin(), steps.end());
    Program launch(arguments("launch", "broken", launched));
    std::vector<pid_t> killed;
    for (int fault = 0; fault < kFaults; ++fault) {
      const int rank = fault % 2;
      const pid_t pid = wait_for("broken", rank, 20 + 200 * fault, killed);
      if (pid < 0) break;
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 40'000));  // anywhere in a step or a copy
      ::kill(pid, SIGKILL);
      for (int other = 0; other < 3; ++other)
        if (const auto last = now("broken", other)) killed.push_back(static_cast<pid_t>(last->pid));
    }
    outcome = launch.wait();
  }
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<Loss> all = losses("broken", outcome.err);
  EXPECT_EQ(all.size(), kFaults) << outcome.err;
  for (const Loss& loss : all) {
    EXPECT_GT(loss.resumed, 0);
    EXPECT_LE(loss.done - loss.resumed, every) << outcome.err;
  }
  EXPECT_EQ(results_in(folder_ / "broken"), results_in(folder_ / "unbroken"));
  EXPECT_EQ(left_in_memory(), 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, LaunchedCopiesKinds,
                         ::testing::Values(Arguments{"--layout", "dp=3,zero=2"},
                                           Arguments{"--layout", "pp=2,micro=3", "--processes"}
#ifdef LOCKSTEP_LAUNCHES_MPI
                                           ,
                                           Arguments{"--layout", "dp=3", "--mpirun"}
#endif
                                           ));

const Arguments kEndless{"--set", "train.steps=1000000"};

TEST_F(LaunchedCopies, TheirFolderGoesWithTheRunThatIsAskedToEnd) {
  Program launch(arguments("launch", "run", kEndless));
  ASSERT_GT(wait_for("run", 0, 10), 0);
  EXPECT_EQ(left_in_memory(), 1);
  launch.signal(SIGINT);
  const Outcome outcome = launch.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(left_in_memory(), 0);
}

TEST_F(LaunchedCopies, WhatAKilledAgentLeftIsRemovedByTheNextLaunch) {
  {
    Program launch(arguments("launch", "run", kEndless));
    ASSERT_GT(wait_for("run", 0, 10), 0);
    launch.signal(SIGKILL);
    launch.wait();
  }
  ASSERT_EQ(left_in_memory(), 1);
  for (int i = 0; i < 200 && lock_is_held(folder_ / "run/.lock").value_or(false); ++i)
    std::this_thread::sleep_for(50ms);
  const Outcome other =
      run_program(arguments("launch", "other", {"--set", "train.steps=3", "--set", "train.copy_every=1"}));
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(left_in_memory(), 0);
}

TEST_F(LaunchedCopies, HowOftenIsMeasuredAndWrittenIntoTheRunFile) {
  Program launch(arguments("launch", "run", kEndless));
  for (int i = 0; i < 1200; ++i, std::this_thread::sleep_for(50ms))
    if (text_of(folder_ / "run/log.txt").find("the state is copied into memory after every") != std::string::npos)
      break;
  const auto chosen = text_of(folder_ / "run/run.toml").find("\ncopy_every = ");
  ASSERT_NE(chosen, std::string::npos);
  EXPECT_NE(text_of(folder_ / "run/run.toml").substr(chosen, 16), "\ncopy_every = \"a");
  for (int i = 0; i < 60 && text_of(folder_ / "run/launch.json").find("\"copy_every\":null") != std::string::npos; ++i)
    std::this_thread::sleep_for(50ms);
  EXPECT_THAT(text_of(folder_ / "run/launch.json"), Not(HasSubstr("\"copy_every\":null")));
  launch.signal(SIGTERM);
  EXPECT_EQ(launch.wait().code, 0);
}

TEST_F(LaunchedCopies, MemoryThatIsTooSmallIsToldInOneLineAndTheDiskServes) {
  const fs::path small = memory_ / "small";
  fs::create_directory(small);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=4m") != 0) GTEST_SKIP() << "may not mount here";
  Arguments more = arguments("launch", "run", {"--set", "train.steps=30", "--set", "train.save_every=10"});
  std::ranges::replace(more, memory_.string(), small.string());
  const Outcome outcome = run_program(more);
  ::umount(small.c_str());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string log = text_of(folder_ / "run/log.txt");
  EXPECT_THAT(log, AllOf(HasSubstr("no copies of the state in memory: they need "), HasSubstr(small.string()),
                         HasSubstr("a fault costs up to train.save_every = 10 steps"), HasSubstr("checkpoint saved")));
}

TEST_F(LaunchedCopies, MemoryThatFillsUpEndsTheCopiesAndNotTheRun) {
  const fs::path small = memory_ / "small";
  fs::create_directory(small);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=64m") != 0) GTEST_SKIP() << "may not mount here";
  Arguments more = arguments("launch", "run", {"--set", "train.steps=400", "--set", "train.copy_every=300"});
  std::ranges::replace(more, memory_.string(), small.string());
  Outcome outcome;
  {
    Program launch(more);
    EXPECT_GT(wait_for("run", 0, 3), 0);
    std::ofstream(small / "somebody else's") << std::string(60 << 20, 'x');
    outcome = launch.wait();
  }
  ::umount(small.c_str());
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string log = text_of(folder_ / "run/log.txt");
  const auto first = log.find("no copies of the state in memory: ");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(log.find("no copies of the state in memory: ", first + 1), std::string::npos);
  EXPECT_THAT(log, HasSubstr("No space left on device"));
}

TEST_F(LaunchedCopies, WithoutLaunchAKeyThatAsksForThemSaysThatItDoesNothing) {
  const Outcome outcome =
      run_program(arguments("train", "run", {"--set", "train.steps=3", "--set", "train.copy_every=1"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(text_of(folder_ / "run/log.txt"), HasSubstr("train.copy_every = 1 does nothing here"));
}

TEST_F(LaunchedCopies, APlaceThatIsNotInMemoryIsToldAndTheDiskServes) {
  Arguments more = arguments("launch", "run", {"--set", "train.steps=3"});
  std::ranges::replace(more, memory_.string(), std::string("/proc"));
  const Outcome outcome = run_program(more);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("no copies of the state in memory: /proc is on a disk"));
}

}  // namespace
}  // namespace lockstep::tests
