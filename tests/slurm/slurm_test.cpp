// lockstep launch in jobs of a real Slurm, by the job script of examples/slurm: run by tools/slurm_here, `make
// test-slurm`.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <thread>
#include <tuple>

#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/process_state.h"
#include "telemetry/rank_now.h"

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

// What a command of Slurm's says, and its exit code.
Outcome shell(const std::string& command) {
  Outcome outcome;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.out.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

class Slurm : public ::testing::Test {
 protected:
  Slurm() { std::ofstream(folder_ / "tiny.toml") << tiny_run(6, 20); }
  ~Slurm() override { shell("scancel --full --signal=KILL --user=root; scancel --user=root"); }
  void SetUp() override {
    if (!std::getenv("SLURM_HERE_FOLDER")) GTEST_SKIP() << "no Slurm here: run it by tools/slurm_here";
    ASSERT_TRUE(comes([] { return shell("squeue -h").out.empty(); }, 60s));
    ASSERT_TRUE(comes([] { return shell("sinfo -h -p low -t idle -o %D").out == "3\n"; }, 60s));
  }

  static bool comes(const std::function<bool()>& what, std::chrono::seconds most) {
    for (const auto until = std::chrono::steady_clock::now() + most; std::chrono::steady_clock::now() < until;
         std::this_thread::sleep_for(100ms))
      if (what()) return true;
    return false;
  }

  std::string of_run(const std::string& out, int ranks, const std::string& more = "") const {
    return fmt::format(
        "{} --out {} --ranks {} --set model.preset=llama-1m --set train.steps=300 --set train.save_every=20 "
        "--set train.eval_every=0 --set optim.schedule=constant {}",
        folder_ / "tiny.toml", folder_ / out, ranks, more);
  }
  // Its number.
  std::string submit(const std::string& options, const std::string& out, int ranks, const std::string& more = "") {
    const Outcome outcome =
        shell(fmt::format("sbatch --parsable --output={} {} {}/examples/slurm/job.sh {} {}", folder_ / (out + ".txt"),
                          options, LOCKSTEP_SOURCE_DIR, LOCKSTEP_BINARY, of_run(out, ranks, more)));
    EXPECT_EQ(outcome.code, 0) << outcome.out;
    return outcome.out.substr(0, outcome.out.find('\n'));
  }
  static std::string field(const std::string& job, const std::string& name) {
    const std::string all = shell("scontrol show job -o " + job).out;
    const std::size_t at = all.find(" " + name + "=");
    if (at == std::string::npos) return "";
    const std::size_t begin = at + name.size() + 2;
    return all.substr(begin, all.find_first_of(" \n", begin) - begin);
  }
  static bool ends(const std::string& job, const std::string& state) {
    return comes([&] { return field(job, "JobState") == state; }, 600s);
  }

  std::optional<RankNow> now(const std::string& out, int rank) const {
    return read_rank_now(folder_ / fmt::format("{}/ranks/rank-{:05}.now", out, rank));
  }
  // A process of the rank at work, after that step.
  pid_t wait_for_rank(const std::string& out, int rank, std::int64_t step) const {
    std::optional<RankNow> found;
    const bool came = comes(
        [&] {
          found = now(out, rank);
          return found && found->doing != DoingKind::ended && found->step >= step;
        },
        300s);
    EXPECT_TRUE(came) << said(out);
    return came ? static_cast<pid_t>(found->pid) : -1;
  }
  std::string said(const std::string& out) const { return text_of(folder_ / (out + ".txt")); }
  std::string log(const std::string& out) const { return text_of(folder_ / (out + "/log.txt")); }

  // The losses of all steps and the last checkpoint of two runs are the same.
  void expect_bits_of(const std::string& out, const std::string& unbroken) const {
    EXPECT_EQ(losses_in(folder_ / out), losses_in(folder_ / unbroken));
    const auto last = [&](const std::string& run) {
      std::map<std::string, std::string> files = results_in(folder_ / run).files;
      std::erase_if(files, [](const auto& file) { return file.first.find("step-00000300") == std::string::npos; });
      return files;
    };
    EXPECT_FALSE(last(out).empty());
    EXPECT_EQ(last(out), last(unbroken));
  }
  void train_unbroken(int ranks) const {
    const Outcome outcome = run_in_shell("train " + of_run("unbroken", ranks));
    ASSERT_EQ(outcome.code, 0) << outcome.out;
  }

  TemporaryFolder folder_;
};

TEST_F(Slurm, AJobOverTwoNodesEndsWithTheBitsOfThreads) {
  train_unbroken(2);
  const std::string job = submit("", "run", 2);
  EXPECT_TRUE(ends(job, "COMPLETED")) << field(job, "JobState") << said("run");
  EXPECT_EQ(field(job, "ExitCode"), "0:0");
  EXPECT_THAT(said("run"), Not(HasSubstr("is lost")));
  EXPECT_NE(now("run", 0)->host, now("run", 1)->host);
  expect_bits_of("run", "unbroken");
}

TEST_F(Slurm, ARankThatIsKilledStartsAgainInItsJob) {
  train_unbroken(2);
  const std::string job = submit("", "run", 2);
  const pid_t pid = wait_for_rank("run", 1, 45);
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
  EXPECT_TRUE(ends(job, "COMPLETED")) << field(job, "JobState") << said("run");
  EXPECT_EQ(field(job, "Restarts"), "0");
  EXPECT_THAT(said("run"), HasSubstr("restart 1 of at most 10"));
  expect_bits_of("run", "unbroken");
}

// Its ranks go with it; the others continue without that node, and the job tells of the task that was lost.
TEST_F(Slurm, ATaskThatIsKilledLeavesTheOtherNodesTheRun) {
  const std::string job = submit("--nodes=3", "run", 3, "--on-fault shrink");
  const pid_t pid = wait_for_rank("run", 2, 45);
  ASSERT_GT(pid, 0);
  const std::string agent = shell(fmt::format("ps -o ppid= -p {}", pid)).out;
  shell(fmt::format("kill -KILL {}", agent));
  EXPECT_TRUE(ends(job, "FAILED")) << field(job, "JobState") << said("run");
  EXPECT_EQ(field(job, "ExitCode"), "137:0") << said("run");
  EXPECT_THAT(said("run"), HasSubstr("continuing with 2 ranks"));
  EXPECT_EQ(losses_in(folder_ / "run").size(), 300u);
}

TEST_F(Slurm, AJobThatIsPreemptedSavesIsQueuedAgainAndResumes) {
  train_unbroken(3);
  const std::string job = submit("--nodes=3", "run", 3);
  ASSERT_GT(wait_for_rank("run", 0, 45), 0);
  const std::string other =
      shell("sbatch --parsable -p high --nodes=3 --exclusive --output=/dev/null --wrap 'sleep 2'").out;
  EXPECT_TRUE(comes([&] { return field(job, "Restarts") == "1"; }, 300s)) << said("run");
  EXPECT_TRUE(ends(job, "COMPLETED")) << field(job, "JobState") << said("run");
  EXPECT_THAT(log("run"), AllOf(HasSubstr("by SIGTERM"), HasSubstr("resuming from ")));
  EXPECT_THAT(said("run"), HasSubstr("SLURM_RESTART_COUNT=1"));
  EXPECT_THAT(said("run"), Not(HasSubstr("restart 1 of")));  // it was no fault
  expect_bits_of("run", "unbroken");
}

// Shortly before the time limit Slurm sends what --signal names, to the tasks.
TEST_F(Slurm, AJobWhoseTimeIsUpSavesIsQueuedAgainAndResumes) {
  train_unbroken(2);
  const std::string job = submit("", "run", 2);
  ASSERT_GT(wait_for_rank("run", 0, 45), 0);
  shell("scancel --signal=USR1 " + job);
  EXPECT_TRUE(comes([&] { return field(job, "Restarts") == "1"; }, 300s)) << said("run");
  EXPECT_TRUE(ends(job, "COMPLETED")) << field(job, "JobState") << said("run");
  EXPECT_THAT(log("run"), AllOf(HasSubstr("by SIGUSR1"), HasSubstr("resuming from ")));
  expect_bits_of("run", "unbroken");
}

// Killed without a warning, and queued again by whoever runs the cluster.
TEST_F(Slurm, AJobThatIsQueuedAgainFromOutsideResumesFromItsNewestCheckpoint) {
  train_unbroken(2);
  const std::string job = submit("", "run", 2, "--overwrite");
  ASSERT_GT(wait_for_rank("run", 0, 45), 0);
  shell("scancel --full --signal=KILL " + job + "; scontrol requeue " + job);
  EXPECT_TRUE(comes([&] { return field(job, "Restarts") == "1"; }, 300s)) << said("run");
  EXPECT_TRUE(ends(job, "COMPLETED")) << field(job, "JobState") << said("run");
  EXPECT_THAT(log("run"), HasSubstr("resuming from "));
  expect_bits_of("run", "unbroken");
}

TEST_F(Slurm, AJobThatIsCancelledSavesAndStaysCancelled) {
  const std::string job = submit("", "run", 2, "--set train.steps=1000000 --set train.save_every=0");
  const pid_t pid = wait_for_rank("run", 0, 45);
  ASSERT_GT(pid, 0);
  shell("scancel " + job);
  EXPECT_TRUE(ends(job, "CANCELLED")) << field(job, "JobState") << said("run");
  EXPECT_TRUE(comes([&] { return ::kill(pid, 0) != 0 && shell("pgrep -f '[l]ockstep launch'").code != 0; }, 30s));
  EXPECT_THAT(log("run"), AllOf(HasSubstr("checkpoint saved"), HasSubstr("by SIGTERM")));
  std::this_thread::sleep_for(8s);  // longer than what is queued again waits
  EXPECT_EQ(field(job, "JobState"), "CANCELLED");
  EXPECT_EQ(field(job, "Restarts"), "0");
}

// What srun sets for MPI programs is not meant for ranks that an agent starts.
TEST_F(Slurm, AStepWithMpiVariablesIsAStepLikeOthers) {
  // Slurm's PMIx cannot serve two nodes that are one machine.
  for (const auto& [kind, nodes, more] :
       {std::tuple{"pmix", 1, "--processes"}, std::tuple{"pmi2", 1, ""}, std::tuple{"pmi2", 2, ""}}) {
    const std::string out = fmt::format("{}-{}", kind, nodes);
    const Outcome outcome =
        shell(fmt::format("srun --mpi={} --nodes={} --ntasks-per-node=1 --exclusive {} launch {} {}", kind, nodes,
                          LOCKSTEP_BINARY, of_run(out, 2, "--quiet --set train.steps=5"), more));
    EXPECT_EQ(outcome.code, 0) << outcome.out;
    EXPECT_THAT(losses_in(folder_ / out), SizeIs(5)) << outcome.out;
  }
}

TEST_F(Slurm, OneTaskPerNodeIsAskedForInOneLine) {
  for (const char* nodes : {"--nodes=2 --ntasks=4", "--nodes=1 --ntasks=2"}) {
    const Outcome outcome =
        shell(fmt::format("srun {} --exclusive {} launch {}", nodes, LOCKSTEP_BINARY, of_run("run", 2)));
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_THAT(outcome.out,
                AllOf(HasSubstr("start one launch per node: srun --ntasks-per-node=1"), HasSubstr("tasks on")));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
  }
  const Outcome outcome = shell(fmt::format("srun --nodes=2 --ntasks-per-node=1 --exclusive {} launch --mpirun {}",
                                            LOCKSTEP_BINARY, of_run("run", 2)));
  EXPECT_THAT(outcome.out, HasSubstr("--mpirun under srun would start an mpirun on every node"));
}

}  // namespace
}  // namespace lockstep::tests
