// lockstep launch with an agent per host, as a user runs it. Hosts are addresses of this machine: their agents and
// ranks are processes that can be killed together.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/launch_state.h"
#include "telemetry/rank_now.h"

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

class Hosts : public ::testing::Test {
 protected:
  Hosts() { std::ofstream(folder_ / "tiny.toml") << tiny_run(6, 10); }

  Arguments arguments(const std::string& command, const std::string& out, const Arguments& more) const {
    Arguments all{command, folder_ / "tiny.toml", "--out", folder_ / out,         "--set", "precision.compute=fp64",
                  "--set", "train.eval_every=0",  "--set", "train.save_every=50", "--set", "optim.schedule=constant",
                  "--set", "optim.lr=1e-5"};  // so that rounding does not grow over thousands of steps
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void start(int host) {
    std::string list;
    for (int i = 1; i <= count_; ++i) list += fmt::format("{}127.0.0.{}", list.empty() ? "" : ",", i);
    Arguments more{"--set", "train.steps=1000000", "--hosts", list, "--host", fmt::format("127.0.0.{}", host + 1)};
    more.insert(more.end(), more_.begin(), more_.end());
    agents_[static_cast<std::size_t>(host)] = std::make_unique<Program>(arguments("launch", "run", more));
  }
  void start_all(int count, const Arguments& more) {
    count_ = count;
    more_ = more;
    agents_.resize(static_cast<std::size_t>(count));
    for (int host = 0; host < count; ++host) start(host);
  }
  Program& agent(int host) { return *agents_[static_cast<std::size_t>(host)]; }
  std::filesystem::path run() const { return folder_.path() / "run"; }
  std::int64_t last_step() const { return std::ssize(losses_in(run())); }

  // What launch.json says when it says what is wanted and some steps were done since.
  template <class Wanted>
  LaunchState wait_until(const std::string& what, const Wanted& wanted) {
    std::optional<LaunchState> state;
    for (int i = 0; i < 1800; ++i, std::this_thread::sleep_for(50ms)) {
      state = read_launch_state(launch_file(run()));
      if (!state || state->state != LaunchPhase::running || !wanted(*state)) continue;
      const std::int64_t then = last_step();
      for (int j = 0; j < 600 && last_step() < then + 20; ++j) std::this_thread::sleep_for(50ms);
      return *state;
    }
    ADD_FAILURE() << "not seen within 90 s: " << what << "; launch.json: " << text_of(launch_file(run()));
    return state.value_or(LaunchState{});
  }
  LaunchState wait_for_ranks(std::int64_t ranks, std::int64_t least_epoch) {
    return wait_until(fmt::format("{} ranks in epoch {}", ranks, least_epoch), [&](const LaunchState& state) {
      std::int64_t there = 0;
      for (const LaunchedHost& host : state.hosts) there += std::ssize(host.ranks);
      return there == ranks && state.epoch >= least_epoch;
    });
  }
  // The agent and its ranks at once, as when its host loses power.
  void kill_host(int host) {
    const auto state = read_launch_state(launch_file(run()));
    std::vector<pid_t> pids;
    if (state)
      for (const LaunchedHost& one : state->hosts)
        if (one.address == fmt::format("127.0.0.{}", host + 1))
          for (const int rank : one.ranks)
            if (const auto now = read_rank_now(run() / fmt::format("ranks/rank-{:05}.now", rank)))
              pids.push_back(static_cast<pid_t>(now->pid));
    agent(host).signal(SIGKILL);
    for (const pid_t pid : pids) ::kill(pid, SIGKILL);
    agents_[static_cast<std::size_t>(host)].reset();
  }
  // Asks for the end at one host; all end well.
  void end_all(int asked) {
    agent(asked).signal(SIGTERM);
    for (const auto& agent : agents_) {
      if (!agent) continue;  // killed
      const Outcome outcome = agent->wait();
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    }
  }
  RunResults unbroken(const Arguments& layout) {
    Arguments more{"--set", fmt::format("train.steps={}", last_step())};
    more.insert(more.end(), layout.begin(), layout.end());
    const Outcome outcome = run_program(arguments("train", "unbroken", more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return results_in(folder_.path() / "unbroken");
  }
  void expect_one_ranks_losses() {
    const std::vector<double> one = unbroken({}).losses, these = losses_in(run());
    ASSERT_EQ(these.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i)
      ASSERT_NEAR(these[i], one[i], 1e-10 * std::abs(one[i])) << "step " << i + 1;
  }

  TemporaryFolder folder_;
  int count_ = 0;
  Arguments more_;
  std::vector<std::unique_ptr<Program>> agents_;
};

TEST_F(Hosts, ASpareTakesThePlaceOfALostHostAndNoBitChanges) {
  start_all(3, {"--layout", "dp=2,zero=1", "--spares", "1"});
  const LaunchState before = wait_for_ranks(2, 1);
  EXPECT_EQ(before.hosts[2].role, HostRole::spare);
  kill_host(1);
  const LaunchState after = wait_for_ranks(2, before.epoch + 1);
  EXPECT_EQ(after.hosts[1].address, "127.0.0.3");
  EXPECT_THAT(after.hosts[1].ranks, ::testing::ElementsAre(1));
  ASSERT_TRUE(after.fault.has_value());
  EXPECT_THAT(after.fault->text, HasSubstr("host 127.0.0.2 is lost"));
  end_all(0);
  EXPECT_EQ(results_in(run()), unbroken({"--layout", "dp=2,zero=1"}));
}

TEST_F(Hosts, ARunShrinksWhenAHostIsLostAndGrowsWhenItIsBack) {
  start_all(3, {"--layout", "dp=3,zero=2"});
  const LaunchState before = wait_for_ranks(3, 1);
  kill_host(2);
  const LaunchState shrunk = wait_for_ranks(2, before.epoch + 1);
  EXPECT_EQ(shrunk.layout, "dp=2,zero=2");
  start(2);
  wait_for_ranks(3, shrunk.epoch + 1);
  end_all(2);  // any of them may be asked
  expect_one_ranks_losses();
}

TEST_F(Hosts, TheLossOfTheLeaderIsOvercomeByTheNext) {
  start_all(3, {"--layout", "dp=3"});
  const LaunchState before = wait_for_ranks(3, 1);
  EXPECT_EQ(before.leader, "127.0.0.1");
  kill_host(0);
  const LaunchState after = wait_for_ranks(2, before.epoch + 1);
  EXPECT_EQ(after.leader, "127.0.0.2");
  start(0);  // it comes back as one of the others
  const LaunchState grown = wait_for_ranks(3, after.epoch + 1);
  EXPECT_EQ(grown.leader, "127.0.0.2");
  end_all(1);
  expect_one_ranks_losses();
}

TEST_F(Hosts, AnAgentThatIsStoppedAndWakesDisturbsNobody) {
  start_all(3, {"--layout", "dp=3"});
  const LaunchState before = wait_for_ranks(3, 1);
  agent(1).signal(SIGSTOP);
  const LaunchState shrunk = wait_for_ranks(2, before.epoch + 1);
  agent(1).signal(SIGCONT);
  wait_for_ranks(3, shrunk.epoch + 1);
  end_all(0);
  expect_one_ranks_losses();
}

// Each of the two was left with half of the hosts, and leads: one of them must give way.
TEST_F(Hosts, TwoThatHaveLostEachOtherTrainTogetherAgain) {
  start_all(2, {"--layout", "dp=2", "--on-fault", "restart,wait"});
  const LaunchState before = wait_for_ranks(2, 1);
  agent(0).signal(SIGSTOP);
  std::this_thread::sleep_for(8s);  // longer than the other waits for it, and takes to lead
  agent(0).signal(SIGCONT);
  wait_for_ranks(2, before.epoch + 1);
  end_all(0);
  expect_one_ranks_losses();
}

TEST_F(Hosts, TheSmallerPartOfASplitTrainsNoMore) {
  start_all(3, {"--layout", "dp=3", "--wait", "3"});
  wait_for_ranks(3, 1);
  agent(0).signal(SIGSTOP);
  kill_host(1);
  const Outcome left = agent(2).wait();
  EXPECT_EQ(left.code, 5);
  EXPECT_THAT(left.err, HasSubstr("1 of 3 hosts is there; 127.0.0.1, 127.0.0.2 are not"));
  EXPECT_THAT(left.err, HasSubstr("--resume"));
  const auto steps = last_step();
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(last_step(), steps);
}

}  // namespace
}  // namespace lockstep::tests
