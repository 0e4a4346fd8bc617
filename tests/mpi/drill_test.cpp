// Nobody waits for ever: processes that die, stop, end, throw or call something else are named by all the others, in
// time, and no process and no memory is left. Each drill is a run of mpirun of its own (drill.cpp).
#include <dirent.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "comm/mpi/world.h"
#include "support/deadlines.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct Outcome {
  std::string text;
  int status = 0;
  double seconds = 0;
  int lines_with(const std::string& words) const {
    int n = 0;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) n += line.find(words) != std::string::npos;
    return n;
  }
  // The longest that a rank says it has waited. Rank 2 does not count: it is the one that the others wait for, and one
  // that was stopped says how long that was when mpirun wakes it to end it.
  double longest_wait() const {
    double most = 0;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);)
      if (line.starts_with('[') && line.find(" s] ") != std::string::npos &&
          line.find(" s] rank 2: ") == std::string::npos)
        most = std::max(most, std::atof(line.c_str() + 1));
    return most;
  }
};

std::set<std::string> shared_files() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm"))
    if (const std::string name = file.path().filename(); name.rfind("lockstep-", 0) == 0) names.insert(name);
  return names;
}

int processes_with(const std::string& mark) {
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream in(entry.path() / "cmdline", std::ios::binary);
    const std::string line(std::istreambuf_iterator<char>(in), {});
    n += line.find(mark) != std::string::npos;
  }
  return n;
}

Outcome drill(const std::string& name, const std::string& more = "", int ranks = 4) {
  const std::set<std::string> files = shared_files();
  const std::filesystem::path report =
      std::filesystem::temp_directory_path() / fmt::format("lockstep-drill-{}", getpid());
  const std::string mark = fmt::format("--report={}", report.string());
  const std::string command = fmt::format(
      "timeout 60 {} --allow-run-as-root --oversubscribe --bind-to none -n {} {} --drill={} {} {} --deadline=2 2>&1",
      LOCKSTEP_MPIRUN, ranks, std::filesystem::read_symlink("/proc/self/exe").string(), name, more, mark);
  const auto begin = std::chrono::steady_clock::now();
  FILE* pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  Outcome outcome;
  char part[4096];
  while (const std::size_t n = std::fread(part, 1, sizeof(part), pipe)) outcome.text.append(part, n);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LT(outcome.seconds, 20);
  for (int i = 0; i < 100 && processes_with(mark) > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(processes_with(mark), 0) << outcome.text;
  std::ifstream said(report);
  outcome.text.append(std::istreambuf_iterator<char>(said), {});
  std::filesystem::remove(report);
  for (const std::string& file : shared_files()) EXPECT_TRUE(files.count(file)) << file << " was left";
  return outcome;
}

// A drill in which nobody waits longer than `most` seconds. A busy machine makes a wait longer, so of some tries one
// must be as short: a wait for a deadline never is.
Outcome drill_within(double most, const std::string& name, const std::string& more = "") {
  Outcome outcome = drill(name, more);
  for (int tries = 1; tries < 4 && outcome.longest_wait() >= most; ++tries) outcome = drill(name, more);
  EXPECT_LT(outcome.longest_wait(), most) << outcome.text;
  return outcome;
}

TEST(Drill, AProcessThatIsKilledIsNamedAtOnce) {
  const Outcome outcome = drill_within(0.5, "kill");
  EXPECT_EQ(outcome.lines_with("rank 2 (process "), 3) << outcome.text;
  EXPECT_EQ(outcome.lines_with(") is gone; last in all_reduce #4 of 'world', done"), 3) << outcome.text;
  EXPECT_NE(outcome.status, 0);
}

TEST(Drill, AProcessThatIsKilledInTheMiddleIsNamedAtOnce) {
  const Outcome outcome = drill_within(2, "kill_under_way");
  EXPECT_EQ(outcome.lines_with(") is gone; last in all_reduce #5 of 'world', not done"), 3) << outcome.text;
}

TEST(Drill, AProcessThatExitsWithoutAWordIsNamedAtOnce) {
  const Outcome outcome = drill_within(0.5, "exit");
  EXPECT_EQ(outcome.lines_with("rank 2 (process "), 3) << outcome.text;
}

TEST(Drill, AProcessThatStopsIsNamedWhenTheDeadlinePasses) {
  const Outcome outcome = drill_within(2 * kUntilTwice, "stop");
  // mpirun wakes rank 2 in the end, which may say so too.
  EXPECT_GE(outcome.lines_with("all_reduce of 1000 fp32 (sum, canonical): rank 2 has not come within 2 s"), 3)
      << outcome.text;
  EXPECT_GE(outcome.lines_with("rank 2: last in all_reduce #4 of 'world', done"), 3) << outcome.text;
  EXPECT_EQ(outcome.status, 5);
}

TEST(Drill, ARankThatThrowsIsTheCauseForAllOthers) {
  const Outcome outcome = drill_within(1, "throw");
  EXPECT_THAT(outcome.text, HasSubstr("] rank 2: no such tokens; look again")) << outcome.text;
  EXPECT_EQ(outcome.lines_with("rank 2 has failed: no such tokens; look again") +
                outcome.lines_with("rank 2 has left the group"),
            3)
      << outcome.text;
}

TEST(Drill, ARankThatLeavesIsNamed) {
  const Outcome outcome = drill_within(1.5, "leave");
  EXPECT_EQ(outcome.lines_with("rank 2 has left the group and will not come"), 3) << outcome.text;
  EXPECT_EQ(outcome.status, 5);
}

TEST(Drill, MismatchedCallsAreNamedOnAllRanksAndAgain) {
  for (const char* hosts : {"", "--hosts=0,0,1,1", "--hosts=0,1,2,0"}) {
    const Outcome outcome = drill("mismatch", hosts);
    EXPECT_EQ(outcome.lines_with("mismatched calls at #2 of 'world': rank 0 called all_reduce of 1000 fp32 (sum, "
                                 "canonical), rank 2 called broadcast of 1000 fp32 (root 0, canonical)"),
              4)
        << outcome.text;
    EXPECT_EQ(outcome.lines_with("and again"), 4) << outcome.text;
    EXPECT_EQ(outcome.status, 5);
  }
}

TEST(Drill, SendsAndRecvsThatDoNotMatchAreNamedAtBothEnds) {
  for (const char* hosts : {"", "--hosts=0,1,2,3"}) {
    const Outcome outcome = drill("send_recv", hosts);
    EXPECT_GE(
        outcome.lines_with("mismatched calls at #1 of 'pair': rank 2 called send of 1000 fp32 to 1, rank 3 called "
                           "recv of 999 fp32 from 0"),
        2)
        << outcome.text;
  }
}

// The same with tensors that the others see and write into.
TEST(Drill, AProcessThatIsKilledWhileOthersAreAtItsTensorsIsNamedAtOnce) {
  const Outcome outcome = drill_within(1.5, "kill_at_work");
  EXPECT_EQ(outcome.lines_with("rank 2 (process "), 3) << outcome.text;
}

TEST(Drill, AProcessThatStopsWhileOthersAreAtItsTensorsIsNamedWhenTheDeadlinePasses) {
  const Outcome outcome = drill_within(2 * kUntilTwice, "stop_at_work");
  EXPECT_GE(outcome.lines_with(": rank 2 has not come within 2 s"), 3) << outcome.text;
}

TEST(Drill, WithTensorsThatOthersSeeAllIsNamedAsWithout) {
  const char* seen = "--least_seen=0";
  const Outcome killed = drill_within(0.5, "kill", seen);
  EXPECT_EQ(killed.lines_with(") is gone; last in all_reduce #4 of 'world', done"), 3) << killed.text;
  const Outcome stopped = drill("stop", seen);
  EXPECT_GE(stopped.lines_with("all_reduce of 1000 fp32 (sum, canonical): rank 2 has not come within 2 s"), 3)
      << stopped.text;
  const Outcome left = drill("leave", seen);
  EXPECT_EQ(left.lines_with("rank 2 has left the group and will not come"), 3) << left.text;
  const Outcome mismatched = drill("mismatch", seen);
  EXPECT_EQ(mismatched.lines_with("mismatched calls at #2 of 'world': rank 0 called all_reduce of 1000 fp32 (sum, "
                                  "canonical), rank 2 called broadcast of 1000 fp32 (root 0, canonical)"),
            4)
      << mismatched.text;
  EXPECT_EQ(mismatched.lines_with("and again"), 4) << mismatched.text;
}

// MPI's own start waits for every process, and cannot be ended: whoever is in it says so all the same.
TEST(Drill, AProcessThatNeverJoinsIsNamedWhenTheDeadlineOfTheStartPasses) {
  const Outcome outcome = drill_within(2 * kUntilTwice, "never_joins", "--least_start=0");
  EXPECT_EQ(outcome.lines_with("the start of MPI was not done within 2 s: rank 2 has not come; start all ranks"), 3)
      << outcome.text;
  EXPECT_EQ(outcome.status, 5);
}

TEST(Drill, AProcessOfAnotherCommandIsNamedAtOnce) {
  const Outcome outcome = drill_within(2, "will_not_join");  // the start has 10 s; others end a second after the first
  EXPECT_GE(outcome.lines_with("rank 2 runs 'lockstep plan', which joins no other ranks, and rank "), 1)
      << outcome.text;
  EXPECT_EQ(outcome.status, 2);
}

TEST(Drill, WithSeveralHostsTheOthersAreToldWhoIsGone) {
  const Outcome outcome = drill_within(0.5, "kill", "--hosts=0,0,1,1");  // rank 3 sees it and tells ranks 0 and 1
  EXPECT_EQ(outcome.lines_with("rank 2 (process "), 3) << outcome.text;
}

TEST(Drill, WithSeveralHostsTheOneThatDoesNotComeIsNamed) {
  const Outcome outcome = drill("stop", "--hosts=0,0,1,1");
  EXPECT_GE(outcome.lines_with(": rank 2 has not come within 2 s"), 3) << outcome.text;
}

TEST(Drill, WithSeveralHostsOneThatIsAloneOnItsHostIsFoundByTheDeadline) {
  const Outcome outcome =
      drill_within(2 * kUntilTwice, "stop", "--hosts=0,0,1,0");  // nobody beside it to see who it is
  EXPECT_GE(outcome.lines_with(": rank 2 has not come within 2 s"), 3) << outcome.text;
}

}  // namespace
}  // namespace lockstep::tests
