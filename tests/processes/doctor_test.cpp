// lockstep doctor on ranks that are processes: one that is stopped, one that runs half the time, one that is killed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "support/diagnosis.h"
#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/rank_now.h"

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

class DoctorOfProcesses : public ::testing::Test {
 protected:
  // Two ranks that train without end, and are at their second step.
  DoctorOfProcesses() {
    std::ofstream(folder_ / "tiny.toml") << tiny_run(96, 60);  // steps of some tens of milliseconds
    std::vector<std::string> launcher = undisturbed();
    const std::vector<std::string> mpirun{
        LOCKSTEP_MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"};
    launcher.insert(launcher.end(), mpirun.begin(), mpirun.end());
    run_.emplace(std::vector<std::string>{"train", folder_ / "tiny.toml", "--out", folder_ / "run", "--set",
                                          "model.preset=llama-1m", "--set", "train.steps=1000000", "--set",
                                          "train.eval_every=0", "--set", "optim.schedule=constant"},
                 "/", launcher);
    for (int i = 0; i < 600 && !now(1); ++i) std::this_thread::sleep_for(100ms);
    pid_ = static_cast<pid_t>(now(1).value().pid);
  }
  ~DoctorOfProcesses() override {
    ::kill(pid_, SIGCONT);
    run_->signal(SIGTERM);
    run_->wait();
  }
  std::optional<RankNow> now(int rank) const {
    return read_rank_now(folder_ / ("run/ranks/rank-0000" + std::to_string(rank) + ".now"));
  }
  Diagnosis diagnosis() const { return diagnosis_of(folder_ / "run"); }

  TemporaryFolder folder_;
  std::optional<Program> run_;
  pid_t pid_ = -1;  // of rank 1
};

TEST_F(DoctorOfProcesses, NamesTheOneThatIsStoppedAndTheCallInWhichOthersWait) {
  EXPECT_THAT(diagnosis().names, testing::Not(testing::Contains("hang")));
  ::kill(pid_, SIGSTOP);
  for (int i = 0; i < 100 && now(0)->doing != DoingKind::call; ++i) std::this_thread::sleep_for(100ms);
  std::this_thread::sleep_for(1500ms);
  const Diagnosis found = diagnosis();
  EXPECT_EQ(found.code, 1);
  ASSERT_FALSE(found.names.empty());
  EXPECT_EQ(found.names[0], "hang") << found.text;
  EXPECT_THAT(found.first,
              AllOf(HasSubstr("rank 1 of 2 is stopped"), HasSubstr(fmt::format("rank 1 (process {} on ", pid_)),
                    HasSubstr("rank 0 has waited "), HasSubstr(" in all_"), HasSubstr(" of 'world'"),
                    HasSubstr(fmt::format("kill -CONT {}", pid_)), HasSubstr("run.deadline")));
  ::kill(pid_, SIGCONT);
  for (int i = 0; i < 100 && diagnosis().names == std::vector<std::string>{"hang"}; ++i)
    std::this_thread::sleep_for(100ms);
  EXPECT_THAT(diagnosis().names, testing::Not(testing::Contains("hang")));
}

TEST_F(DoctorOfProcesses, NamesTheOneThatIsSlowedByHalf) {
  // The first windows of steps hold some from before it was slowed, among which a busy machine may make the other the
  // slower.
  Diagnosis found;
  const auto is_named = [&] { return found.first.find("rank 1 takes ") != std::string::npos; };
  for (int trial = 0; trial < 8 && !is_named(); ++trial) {
    const auto end = std::chrono::steady_clock::now() + 4s;
    while (std::chrono::steady_clock::now() < end) {
      ::kill(pid_, SIGSTOP);
      std::this_thread::sleep_for(20ms);
      ::kill(pid_, SIGCONT);
      std::this_thread::sleep_for(15ms);
    }
    found = diagnosis();
  }
  ASSERT_FALSE(found.names.empty()) << found.text;
  EXPECT_EQ(found.names[0], "slow_rank") << found.text;
  EXPECT_THAT(found.first, AllOf(HasSubstr("rank 1 takes "), HasSubstr("it is busy "),
                                 HasSubstr(fmt::format("it is process {} on ", pid_)), HasSubstr("lockstep train ")));
}

TEST_F(DoctorOfProcesses, NamesTheOneThatWasKilled) {
  ::kill(pid_, SIGKILL);
  for (int i = 0; i < 300 && now(0)->doing != DoingKind::ended; ++i) std::this_thread::sleep_for(100ms);
  const Diagnosis found = diagnosis();
  ASSERT_FALSE(found.names.empty()) << found.text;
  EXPECT_EQ(found.names[0], "killed_rank") << found.text;
  EXPECT_THAT(found.first, AllOf(HasSubstr("rank 1 was killed"), HasSubstr(fmt::format("process {}", pid_)),
                                 HasSubstr("log.txt: the run has failed: rank 1"), HasSubstr("lockstep plan")));
}

}  // namespace
}  // namespace lockstep::tests
