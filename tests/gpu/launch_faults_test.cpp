// Ranks with a GPU that are killed and stopped under lockstep launch: one alone, and two with NCCL between them, which
// share a GPU. The run continues with the bits of one that never failed.
//
// NCCL refuses two ranks of one machine on one GPU, so each has an agent of its own that says it is another machine
// (NCCL_HOSTID), under another address of the loopback.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "comm/control/coordinator.h"
#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/process_state.h"
#include "telemetry/rank_now.h"
#include "tensor/cuda/device.h"

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

class GpuFaults : public ::testing::Test {
 protected:
  GpuFaults() { std::ofstream(folder_ / "tiny.toml") << tiny_run(8, 10); }
  void SetUp() override {
    if (cuda::gpu_count() == 0) GTEST_SKIP() << "SKIPPED: no GPU here, or a build without CUDA";
    if (!control::has_encryption()) GTEST_SKIP() << "not run: a build without libsodium, whose ranks cannot meet";
  }

  Arguments arguments(const std::string& command, const std::string& out, const Arguments& more) const {
    Arguments all{command, folder_ / "tiny.toml", "--out", folder_ / out,
                  "--set", "run.device=cuda",     "--set", "model.preset=llama-1m",
                  "--set", "train.steps=2000",    "--set", "train.save_every=100",
                  "--set", "train.eval_every=0",  "--set", "optim.schedule=constant"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::optional<RankNow> now(int rank) const {
    return read_rank_now(folder_ / fmt::format("broken/ranks/rank-{:05}.now", rank));
  }
  // Does this to a rank's process when it has trained a while, and is none of those that have had it.
  void fault(int rank, int signal) {
    for (int i = 0; i < 1500; ++i, std::this_thread::sleep_for(20ms)) {
      const auto found = now(rank);
      if (!found || found->doing == DoingKind::ended || found->step < 120) continue;
      const auto pid = static_cast<pid_t>(found->pid);
      if (std::ranges::count(had_, pid) > 0 || process_state(found->host, pid) != ProcessState::running) continue;
      for (int other = 0; other < 2; ++other)
        if (const auto last = now(other)) had_.push_back(static_cast<pid_t>(last->pid));
      ::kill(pid, signal);
      return;
    }
    ADD_FAILURE() << "rank " << rank << " has not trained: " << text_of(folder_ / "broken/log.txt");
  }
  void expect_continued(const std::vector<std::unique_ptr<Program>>& agents, const std::string& stopped) const {
    std::string said;
    for (const auto& agent : agents) {
      const Outcome outcome = agent->wait();
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      said += outcome.err;
    }
    const std::string events = text_of(folder_ / "broken/events.jsonl");
    EXPECT_THAT(events, HasSubstr("signal 9"));
    EXPECT_THAT(events, HasSubstr("has been stopped for "));
    EXPECT_THAT(events, HasSubstr(fmt::format(R"("culprit":{})", stopped)));
    EXPECT_THAT(said, HasSubstr("restart 2 of at most 10"));
    EXPECT_EQ(results_in(folder_ / "broken"), results_in(folder_ / "unbroken"));
  }

  TemporaryFolder folder_;
  std::vector<pid_t> had_;
};

TEST_F(GpuFaults, OneRankThatIsKilledAndThenStoppedContinuesWithTheSameBits) {
  ASSERT_EQ(run_program(arguments("train", "unbroken", {})).code, 0);
  std::vector<std::unique_ptr<Program>> agents;
  agents.push_back(std::make_unique<Program>(arguments("launch", "broken", {})));
  fault(0, SIGKILL);
  fault(0, SIGSTOP);
  expect_continued(agents, "0");
}

TEST_F(GpuFaults, TwoRanksOverNcclOfWhichOneIsKilledAndTheOtherStoppedContinueWithTheSameBits) {
  ASSERT_EQ(run_program(arguments("train", "unbroken", {"--layout", "dp=2,zero=1"})).code, 0);
  std::vector<std::unique_ptr<Program>> agents;
  for (int host = 1; host <= 2; ++host)
    agents.push_back(std::make_unique<Program>(
        arguments("launch", "broken",
                  {"--layout", "dp=2,zero=1", "--hosts", "127.0.0.1,127.0.0.2", "--host",
                   fmt::format("127.0.0.{}", host), "--slots", "1"}),
        "/",
        Arguments{"env", fmt::format("NCCL_HOSTID=lockstep-{}", host), "NCCL_SOCKET_IFNAME=lo", "NCCL_NET=Socket"}));
  fault(1, SIGKILL);
  fault(0, SIGSTOP);
  expect_continued(agents, "0");
}

}  // namespace
}  // namespace lockstep::tests
