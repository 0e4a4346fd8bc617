// What a launched run tells of its health: who is to blame for each fault, what it cost, where the time went; by
// lockstep status while it runs and afterwards.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/process_state.h"
#include "telemetry/rank_folder.h"
#include "telemetry/rank_now.h"
#include "telemetry/run_reader.h"

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

class Health : public ::testing::Test {
 protected:
  Health() { std::ofstream(folder_ / "tiny.toml") << tiny_run(6, 3); }

  Arguments launch(const Arguments& more) const {
    Arguments all{"launch",
                  folder_ / "tiny.toml",
                  "--out",
                  folder_ / "run",
                  "--quiet",
                  "--set",
                  "train.steps=1000000",
                  "--set",
                  "train.save_every=20",
                  "--set",
                  "optim.schedule=constant",
                  "--ranks",
                  "3",
                  "--set",
                  "train.eval_every=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // The rank's process, when the run has done this many steps; not one of `others`.
  pid_t wait_for_rank(int rank, std::int64_t step, const std::vector<pid_t>& others = {}) const {
    for (int i = 0; i < 1200; ++i, std::this_thread::sleep_for(50ms)) {
      const auto found = read_rank_now(rank_file(folder_.path() / "run", rank, "now"));
      if (!found || found->doing == DoingKind::ended || found->step < step) continue;
      const auto pid = static_cast<pid_t>(found->pid);
      if (std::ranges::count(others, pid) == 0 && process_state(found->host, pid) == ProcessState::running) return pid;
    }
    ADD_FAILURE() << "rank " << rank << " has not come to step " << step;
    return -1;
  }
  nlohmann::json status() const {
    const Outcome outcome = run_program({"status", folder_ / "run", "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  }
  std::vector<RunEvent> agent_faults() const {
    std::vector<RunEvent> faults;
    for (const RunEvent& event : read_run(folder_.path() / "run").events)
      if (event.kind == "fault" && event.rank < 0) faults.push_back(event);
    return faults;
  }
  void wait_for_faults(std::size_t count) const {
    for (int i = 0; i < 1200 && agent_faults().size() < count; ++i) std::this_thread::sleep_for(50ms);
  }
  TemporaryFolder folder_;
};

class HealthOfRanks : public Health, public ::testing::WithParamInterface<const char*> {};

TEST_P(HealthOfRanks, AKilledAndAStoppedRankAreToBlameAndTheirVictimsAreNot) {
  Program program(launch({GetParam()}));
  std::vector<pid_t> killed;
  const int culprits[] = {2, 1, 0};
  const int signals[] = {SIGKILL, SIGSTOP, SIGKILL};
  for (std::size_t fault = 0; fault < 3; ++fault) {
    const pid_t pid = wait_for_rank(culprits[fault], 25, killed);
    ASSERT_GT(pid, 0);
    for (int rank = 0; rank < 3; ++rank)
      if (const auto now = read_rank_now(rank_file(folder_.path() / "run", rank, "now")))
        killed.push_back(static_cast<pid_t>(now->pid));
    ::kill(pid, signals[fault]);
    wait_for_faults(fault + 1);
  }
  wait_for_rank(0, 25, killed);
  std::this_thread::sleep_for(2s);
  const nlohmann::json running = status();
  program.signal(SIGTERM);
  const Outcome outcome = program.wait();
  EXPECT_TRUE(outcome.code == 0 || GetParam() == std::string("--mpirun")) << outcome.err;  // which has codes of its own

  const std::vector<RunEvent> faults = agent_faults();
  ASSERT_EQ(faults.size(), 3u) << outcome.err;
  for (std::size_t i = 0; i < faults.size(); ++i) EXPECT_EQ(faults[i].culprit, culprits[i]) << faults[i].text;

  EXPECT_THAT((std::vector<std::string>{"running", "starting", "recovering"}), testing::Contains(running["state"]));
  const nlohmann::json& health = running["launch"];
  EXPECT_TRUE(health["launched"] && health["agents"]);
  EXPECT_EQ(health["epoch"], 4);
  EXPECT_EQ(health["restarts"], 3);
  EXPECT_EQ(health["fault"]["culprit"], 0);
  EXPECT_THAT(health["hosts"][0]["ranks"], testing::ElementsAre(0, 1, 2));
  ASSERT_EQ(running["ranks"].size(), 3u);
  for (const nlohmann::json& rank : running["ranks"]) {
    EXPECT_EQ(rank["epoch"], 4);
    EXPECT_GT(rank["step"], 20);
    EXPECT_LT(rank["heard"], 20);
    EXPECT_NE(rank["what"], "");
  }

  // When it has ended: the same, its parts of time add up, and report says so too.
  const nlohmann::json ended = status();
  EXPECT_EQ(ended["state"], "stopped") << "as asked, before its last step";
  EXPECT_FALSE(ended["launch"]["agents"]);
  const nlohmann::json& goodput = ended["launch"]["goodput"];
  double sum = 0;
  for (const auto& [part, seconds] : goodput["parts"].items()) sum += seconds.get<double>();
  EXPECT_NEAR(sum, goodput["seconds"], 1e-6 * sum);
  const auto part = [&](const char* name) { return goodput["parts"][name].get<double>(); };
  EXPECT_GT(part("steps"), 0);
  EXPECT_GT(part("recovery"), 3) << "the stopped rank alone was waited for that long";
  EXPECT_LT(part("recovery"), goodput["seconds"]);
  EXPECT_LT(part("other"), 0.1 * goodput["seconds"].get<double>() + 1);
  EXPECT_EQ(part("stopped"), 0);
  EXPECT_GT(goodput["lost_steps"], 0);
  EXPECT_GT(ended["launch"]["fault"]["cost_seconds"], 0);
  const auto launch_json = nlohmann::json::parse(text_of(folder_ / "run/launch.json"));
  EXPECT_EQ(launch_json["state"], "ended");
  EXPECT_NEAR(launch_json["goodput"], goodput["share"], 0.05);
  const Outcome report = run_program({"report", folder_ / "run"});
  EXPECT_THAT(report.out, AllOf(HasSubstr("Goodput"), HasSubstr("recovery"), HasSubstr("steps)")));
  const Outcome text = run_program({"status", folder_ / "run"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("epoch 4, 3 restarts"), HasSubstr("no agent is at work"),
                              HasSubstr("rank 0 to blame"), HasSubstr("in steps that count")));
}

TEST_F(Health, ARankThatIsHeldMostOfTheTimeIsNamedAsSlowAndIsNoFault) {
  Program program(launch({"--processes", "--set", "model.preset=llama-1m"}));
  const pid_t pid = wait_for_rank(1, 5);
  ASSERT_GT(pid, 0);
  const auto is_named = [&] {
    return std::ranges::any_of(read_run(folder_.path() / "run").events,
                               [](const RunEvent& event) { return event.kind == "slow" && event.rank == 1; });
  };
  bool named = false;
  for (const auto end = std::chrono::steady_clock::now() + 60s; !named && std::chrono::steady_clock::now() < end;) {
    for (int turn = 0; turn < 20; ++turn) {  // a ninth of the time
      ::kill(pid, SIGSTOP);
      std::this_thread::sleep_for(160ms);
      ::kill(pid, SIGCONT);
      std::this_thread::sleep_for(20ms);
    }
    named = is_named();
  }
  EXPECT_TRUE(named);
  program.signal(SIGTERM);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(agent_faults().empty()) << agent_faults()[0].text;
  EXPECT_THAT(text_of(folder_ / "run/log.txt"), HasSubstr("rank 1 computes at less than half the speed of its peers"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, HealthOfRanks,
                         ::testing::Values("--processes"
#ifdef LOCKSTEP_LAUNCHES_MPI
                                           ,
                                           "--mpirun"
#endif
                                           ));

}  // namespace
}  // namespace lockstep::tests
