// Training under mpirun as a user meets it: the bits of threads, one view, and a rank that is lost is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "checkpoint/checkpoint_reader.h"
#include "data/token_file_writer.h"
#include "spec/layout/layout_toml.h"
#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class Processes : public ::testing::Test {
 protected:
  Processes() { std::ofstream(folder_ / "tiny.toml") << tiny_run(12, 5) << "[layout]\nmicro = 2\n"; }

  std::vector<std::string> command(const std::string& out, std::vector<std::string> more) const {
    std::vector<std::string> all{"train", folder_ / "tiny.toml", "--out", folder_ / out};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::vector<std::string> mpirun(int ranks) {
    return {LOCKSTEP_MPIRUN,      "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n",
            std::to_string(ranks)};
  }
  Outcome under_mpirun(int ranks, const std::string& out, const std::vector<std::string>& more = {}) const {
    return Program(command(out, more), "/", mpirun(ranks)).wait();
  }

  // The processes that train in that folder, by rank.
  std::map<int, pid_t> ranks_of(const std::string& out) const {
    std::map<int, pid_t> ranks;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string line = text_of(entry.path() / "cmdline"), environment = text_of(entry.path() / "environ");
      const std::string mark = "OMPI_COMM_WORLD_RANK=";
      const auto at = environment.find(mark);
      if (line.find(folder_ / out) == std::string::npos || at == std::string::npos) continue;
      ranks[std::atoi(environment.c_str() + at + mark.size())] = std::atoi(name.c_str());
    }
    return ranks;
  }

  // Runs until step 2, does something to rank 1, and waits for the end.
  struct Ended {
    Outcome outcome;
    double seconds;
  };
  Ended lose_rank_1(const std::string& out, int signal) const {
    Program running(command(out, {"--set", "train.steps=1000000", "--set", "train.eval_every=0", "--set",
                                  "train.save_every=2", "--set", "optim.schedule=constant"}),
                    "/", mpirun(3));
    for (int i = 0; i < 20000 && !fs::exists(folder_ / (out + "/checkpoints/latest")); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto ranks = ranks_of(out);
    EXPECT_EQ(ranks.size(), 3u);
    if (!ranks.contains(1)) return {running.wait(), 0};
    const auto begin = std::chrono::steady_clock::now();
    kill(ranks.at(1), signal);
    Outcome outcome = running.wait();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_TRUE(ranks_of(out).empty()) << "a process is left";
    return {outcome, seconds};
  }
  void expect_goes_on(const std::string& out) const {
    const std::string latest = text_of(folder_ / (out + "/checkpoints/latest"));
    Program next(command(out, {"--resume", "--ranks", "2", "--set", "optim.schedule=constant", "--set",
                               "train.steps=1000000", "--set", "train.eval_every=0"}));
    next.wait_for_output("step");
    next.signal(SIGINT);
    const Outcome rest = next.wait();
    EXPECT_EQ(rest.code, 0) << rest.out << rest.err;
    EXPECT_THAT(rest.out, HasSubstr("resuming from"));
  }

  TemporaryFolder folder_;
};

TEST_F(Processes, LearnTheBitsThatThreadsLearn) {
  for (const std::string layout : {"dp=3,micro=2",
                                   "dp=3,micro=2,dp_kind=central",
                                   "dp=3,micro=2,dp_kind=server,servers=2",
                                   "dp=2,pp=2,micro=2,dp_kind=server,servers=4",
                                   "dp=5,micro=2,uneven=on,bucket=0",
                                   "dp=3,micro=2,zero=1",
                                   "dp=5,micro=2,zero=2,uneven=on",
                                   "dp=3,micro=2,zero=3",
                                   "dp=4,micro=1,zero=3,shard=2",
                                   "dp=4,micro=1,zero=1,shard=2",
                                   "tp=2,micro=2",
                                   "tp=4,sp=off",
                                   "dp=3,tp=2,micro=2,zero=3",
                                   "pp=4,micro=4",
                                   "pp=2,micro=2,schedule=zb-v",
                                   "dp=2,pp=2,micro=2,zero=3,schedule=zb-h1",
                                   "cp=2",
                                   "cp=4,cp_kind=2x2",
                                   "dp=2,cp=2,tp=2,zero=3",
                                   "pp=2,cp=2,tp=2,micro=2",
                                   "dp=2,pp=2,cp=2,micro=2,zero=3,schedule=zb-v",
                                   "cp=8,cp_order=plain"}) {
    const int ranks = static_cast<int>(parse_layout(layout).ranks());
    const Outcome processes = under_mpirun(ranks, "mpi" + layout, {"--layout", layout});
    ASSERT_EQ(processes.code, 0) << processes.out << processes.err;
    ASSERT_EQ(Program(command("threads" + layout, {"--layout", layout})).wait().code, 0);
    const RunResults mine = results_in(folder_ / ("mpi" + layout)), theirs = results_in(folder_ / ("threads" + layout));
    ASSERT_GE(mine.losses.size(), 6u);
    EXPECT_EQ(mine.losses, theirs.losses) << layout;
    EXPECT_FALSE(mine.files.empty());
    EXPECT_TRUE(mine == theirs) << layout;
  }
}

// Replicas that agree after every third step, two of a group and each by itself.
TEST_F(Processes, TakeTheLocalStepsOfThreads) {
  for (const auto& [name, kind] : {std::pair{"partial", std::vector<std::string>{"--set", "sync.kind=partial"}},
                                   {"mixed", {"--set", "sync.kind=mixed", "--set", "sync.group=2"}}}) {
    std::vector<std::string> more{"--layout", "dp=4,micro=1",        "--set", "sync.every=3",
                                  "--set",    "sync.outer=nesterov", "--set", "train.save_every=3",
                                  "--set",    "train.eval_every=3",  "--set", "train.steps=9"};
    more.insert(more.end(), kind.begin(), kind.end());
    const Outcome processes = under_mpirun(4, "mpi-" + std::string(name), more);
    ASSERT_EQ(processes.code, 0) << processes.out << processes.err;
    ASSERT_EQ(Program(command("threads-" + std::string(name), more)).wait().code, 0);
    const RunResults mine = results_in(folder_ / ("mpi-" + std::string(name)));
    ASSERT_EQ(mine.losses.size(), 12u) << "of nine steps and three evaluations";
    EXPECT_TRUE(mine == results_in(folder_ / ("threads-" + std::string(name)))) << name;
    EXPECT_THAT(processes.out + processes.err, HasSubstr("outside the claim of equal results"));
  }
}

// How many lines have these words.
std::size_t count_of(const std::string& text, const std::string& words) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(words, at)) != std::string::npos; at += words.size()) ++count;
  return count;
}

// The number of processes is the number of all ranks; one that the command line contradicts is refused, on one line.
TEST_F(Processes, AreTheRanks) {
  const Outcome outcome = under_mpirun(2, "two");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(text_of(folder_ / "two/run.toml"), HasSubstr("dp = 2"));
  const Outcome refused = under_mpirun(2, "three", {"--ranks", "3"});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("mpirun -n 2 for a layout of 3 ranks"));
  EXPECT_THAT(refused.err, HasSubstr("use -n 3, or leave --ranks and dp out"));
  EXPECT_EQ(count_of(refused.err, "mpirun -n 2 for"), 1u) << "by rank 0 alone: " << refused.err;
}

// What pp, cp and tp leave of them is dp, whatever dp the run file has.
TEST_F(Processes, LeaveDpToTheOtherAxes) {
  std::ofstream(folder_ / "tiny.toml") << tiny_run(12, 5) << "[layout]\ndp = 6\ntp = 2\n";
  const Outcome four = under_mpirun(4, "four");
  ASSERT_EQ(four.code, 0) << four.err;
  EXPECT_THAT(text_of(folder_ / "four/run.toml"), HasSubstr("\ndp = 2\n"));
  EXPECT_EQ(under_mpirun(2, "named", {"--layout", "pp=2"}).code, 0);
  const Outcome odd = under_mpirun(3, "odd");
  EXPECT_EQ(odd.code, 2);
  EXPECT_EQ(count_of(odd.err, "mpirun -n 3: tp (2) does not divide 3 ranks; use -n 2 or -n 4, or another tp"), 1u)
      << odd.err;
}

// Commands whose ranks are no processes run once, and whatever all processes would say is said once.
TEST_F(Processes, SpeakWithOneVoice) {
  const std::string file = folder_ / "tiny.toml", out = folder_ / "out";
  const auto under = [&](const std::vector<std::string>& arguments) {
    return Program(arguments, "/", mpirun(3)).wait();
  };
  const Outcome plan = under({"plan", file}), alone = run_program({"plan", file});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_EQ(plan.out, alone.out);
  EXPECT_EQ(under({"schedule", "--pp", "2", "--micro", "2"}).out,
            run_program({"schedule", "--pp", "2", "--micro", "2"}).out);
  EXPECT_EQ(under({"--version"}).out, run_program({"--version"}).out);
  ASSERT_EQ(run_program({"train", file, "--out", out, "--set", "train.steps=1"}).code, 0);
  EXPECT_EQ(under({"inspect", out}).out, run_program({"inspect", out}).out);
  const Outcome exported = under({"export", out, "--out", folder_ / "hf"});  // not three at once
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_EQ(count_of(exported.out, "tensors"), 1u);
  for (const auto& [arguments, words] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"plan", "--rnaks", "2"}, "did you mean '--ranks'?"},
           {{"train", file, "--set", "train.stepz=2"}, "unknown key 'stepz'"},
           {{"compare", file, "--layout", "dp=5"}, "3 processes: dp=5 makes 5 ranks; leave dp out, or use -n 5"}}) {
    const Outcome o = under(arguments);
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_EQ(count_of(o.err, words), 1u) << o.err;
  }
  // mpirun gives its processes terminals; what they write to goes into a file here.
  const Outcome trained = under({"train", file, "--out", folder_ / "trained"});
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(count_of(trained.out, "step 6/6"), 1u);
  EXPECT_EQ(count_of(trained.out + trained.err, "\033"), 0u);
  EXPECT_EQ(count_of(trained.out, "█"), 0u);
}

// What one rank alone has been given wrongly, it says itself.
TEST_F(Processes, SayWhatNobodyElseWould) {
  const std::string file = folder_ / "tiny.toml", out = folder_ / "out";
  std::ofstream(file) << tiny_run(12, 30);  // rank 0 waits longer than rank 1 does for it
  std::vector<std::string> launcher = mpirun(1);
  const Outcome o = Program({"train", file, "--out", out, ":", "-n", "1", LOCKSTEP_BINARY, "train", file, "--out", out,
                             "--set", "train.stepz=2"},
                            "/", launcher)
                        .wait();
  EXPECT_NE(o.code, 0);
  EXPECT_EQ(count_of(o.err, "unknown key 'stepz'"), 1u) << o.err;
}

TEST_F(Processes, OneThatIsKilledIsNamedAndTheRunGoesOn) {
  const auto [outcome, seconds] = lose_rank_1("killed", SIGKILL);
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 (process "));
  EXPECT_LT(seconds, 5) << "within the deadline";
  EXPECT_THAT(text_of(folder_ / "killed/log.txt"), HasSubstr("rank 1 (process ")) << "the log says why the run ended";
  expect_goes_on("killed");
}

TEST_F(Processes, OneThatStandsStillIsNamedWhenTheDeadlinePasses) {
  const auto [outcome, seconds] = lose_rank_1("stopped", SIGSTOP);
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("rank 1"));
  EXPECT_THAT(outcome.err, HasSubstr("within 5 s"));
  EXPECT_LT(seconds, 5 * 1.8);  // with the end of all processes; a wait of twice the deadline is longer
  expect_goes_on("stopped");
}

TEST_F(Processes, StopTogetherWhenAsked) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    Program running(command("stopped", {"--set", "train.steps=1000000", "--set", "train.eval_every=0", "--overwrite"}),
                    "/", mpirun(3));
    running.wait_for_output("step");
    for (const auto& [rank, process] : ranks_of("stopped"))
      if (rank == 2) kill(process, signal);
    const Outcome outcome = running.wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("as asked"));
  }
}

// What rank 1 alone cannot read ends all, after a save; rank 1 says why, and the log does.
TEST_F(Processes, DataThatOneCannotReadEndsAllAfterASave) {
  const std::string file = folder_ / "bad.tokens";
  {
    TokenFileWriter writer(file, 16);
    const std::vector<std::int32_t> ids(100 * 8 + 1, 3);
    writer.add(ids);
    writer.finish();
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(64 + 8 * 70 + 3);
    bytes.put(99);
  }
  const Outcome outcome = under_mpirun(3, "bad",
                                       {"--set", "data.tokens=" + file, "--set", "data.eval_share=0", "--set",
                                        "data.seq=8", "--set", "train.steps=100", "--set", "train.eval_every=0"});
  EXPECT_NE(outcome.code, 0);
  const std::string log = text_of(folder_ / "bad/log.txt");
  EXPECT_THAT(log, HasSubstr("token 563 has id 99"));
  const auto newest = open_newest_whole(folder_ / "bad/checkpoints");
  ASSERT_TRUE(newest);
  EXPECT_GT(newest->progress().step, 0);
  EXPECT_THAT(log, HasSubstr(fmt::format("after step {}: the newest checkpoint is of step {}", newest->progress().step,
                                         newest->progress().step)));
}

}  // namespace
}  // namespace lockstep::tests
