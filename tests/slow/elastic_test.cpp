// One run over 8, 5 and 8 ranks, then in another layout of dp, pp and tp, and back: it learns what one rank learns.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "support/program.h"
#include "support/run_results.h"
#include "support/trained.h"
#include "telemetry/launch_state.h"
#include "telemetry/rank_now.h"

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;
using Arguments = std::vector<std::string>;

struct Sequence {
  std::string eight;   // ranks, of which the loss of a host leaves five
  std::string shrunk;  // what they are then
  std::string other;   // eight ranks in another shape
};

class Elastic : public ::testing::TestWithParam<Sequence> {
 protected:
  Elastic() { std::ofstream(folder_ / "tiny.toml") << tiny_run(24, 10); }

  Arguments arguments(const std::string& command, const std::string& out, const Arguments& more) const {
    Arguments all{command, folder_ / "tiny.toml", "--out", folder_ / out,         "--set", "precision.compute=fp64",
                  "--set", "train.eval_every=0",  "--set", "train.save_every=20", "--set", "optim.schedule=constant",
                  "--set", "optim.lr=1e-5"};  // so that rounding does not grow over thousands of steps
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // The agent of a host of five or three places.
  std::unique_ptr<Program> agent(int host, bool resumes = false) const {
    Arguments more{"--set",   "train.steps=1000000", "--layout", GetParam().eight,
                   "--hosts", "127.0.0.1,127.0.0.2", "--host",   fmt::format("127.0.0.{}", host + 1),
                   "--slots", host == 0 ? "5" : "3"};
    if (resumes) more.push_back("--resume");
    return std::make_unique<Program>(arguments("launch", "run", more));
  }
  std::filesystem::path run() const { return folder_.path() / "run"; }
  std::int64_t last_step() const { return std::ssize(losses_in(run())); }
  void wait_for_steps(std::int64_t count) const {
    const std::int64_t then = last_step();
    for (int i = 0; i < 1200 && last_step() < then + count; ++i) std::this_thread::sleep_for(50ms);
    EXPECT_GE(last_step(), then + count);
  }
  // The ranks of an epoch after `epoch`, when there are that many and they have trained a while; the epoch.
  std::int64_t wait_for_ranks(std::size_t ranks, std::int64_t epoch) const {
    for (int i = 0; i < 1800; ++i, std::this_thread::sleep_for(50ms)) {
      const auto state = read_launch_state(launch_file(run()));
      if (!state || state->state != LaunchPhase::running || state->epoch <= epoch) continue;
      std::size_t there = 0;
      for (const LaunchedHost& host : state->hosts) there += host.ranks.size();
      if (there != ranks) continue;
      wait_for_steps(30);
      return state->epoch;
    }
    ADD_FAILURE() << "not seen: " << ranks << " ranks; " << text_of(launch_file(run()));
    return epoch;
  }
  void end(Program& one, Program* other = nullptr) const {
    one.signal(SIGTERM);
    for (Program* const agent : {&one, other}) {
      if (!agent) continue;
      const Outcome outcome = agent->wait();
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    }
  }
  void resume_as(const std::string& layout) const {
    Program launch(
        arguments("launch", "run", {"--processes", "--resume", "--layout", layout, "--set", "train.steps=1000000"}));
    wait_for_steps(40);
    end(launch);
  }

  TemporaryFolder folder_;
};

TEST_P(Elastic, LearnsWhatOneRankLearns) {
  {
    const auto first = agent(0);
    auto second = agent(1);
    std::int64_t epoch = wait_for_ranks(8, 0);
    std::vector<pid_t> ranks;
    for (const int rank : {5, 6, 7})
      if (const auto now = read_rank_now(run() / fmt::format("ranks/rank-{:05}.now", rank)))
        ranks.push_back(static_cast<pid_t>(now->pid));
    second->signal(SIGKILL);
    for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
    second.reset();
    epoch = wait_for_ranks(5, epoch);
    EXPECT_EQ(read_launch_state(launch_file(run()))->layout, GetParam().shrunk);
    second = agent(1, true);
    wait_for_ranks(8, epoch);
    end(*first, second.get());
  }
  resume_as(GetParam().other);
  resume_as(GetParam().eight);
  const std::int64_t steps = last_step();
  const Outcome one =
      run_program(arguments("train", "one", {"--set", fmt::format("train.steps={}", steps), "--set", "train.keep=1"}));
  ASSERT_EQ(one.code, 0) << one.err;
  const double off = distance(trained_in(run(), steps), trained_in(folder_.path() / "one", steps));
  std::printf("%lld steps, %.2g from one rank's\n", static_cast<long long>(steps), off);
  EXPECT_LE(off, 1e-10);
  EXPECT_GT(off, 0) << "sums of other orders are other bits, or nothing was shared";
}

INSTANTIATE_TEST_SUITE_P(Sequences, Elastic,
                         ::testing::Values(Sequence{"dp=8", "dp=5,uneven=on", "dp=2,pp=2,tp=2,micro=2"},
                                           Sequence{"dp=8,zero=1", "dp=5,zero=1,uneven=on", "dp=4,tp=2"},
                                           Sequence{"dp=8,zero=2", "dp=5,zero=2,uneven=on", "dp=4,pp=2,micro=2"},
                                           Sequence{"dp=8,zero=3", "dp=5,zero=3,uneven=on", "dp=2,tp=4"},
                                           Sequence{"dp=8,zero=1", "dp=5,zero=1,uneven=on", "pp=2,tp=4,micro=4"},
                                           Sequence{"dp=8,zero=2", "dp=5,zero=2,uneven=on",
                                                    "dp=2,pp=2,tp=2,zero=1,micro=2"},
                                           Sequence{"dp=8,zero=3", "dp=5,zero=3,uneven=on", "dp=4,pp=2,zero=2,micro=3"},
                                           Sequence{"dp=8", "dp=5,uneven=on", "dp=2,pp=2,tp=2,micro=2,schedule=zb-h1"},
                                           Sequence{"dp=8,zero=3", "dp=5,zero=3,uneven=on", "dp=4,tp=2,zero=3"},
                                           Sequence{"dp=8,zero=1", "dp=5,zero=1,uneven=on", "dp=2,tp=2,cp=2"}));

}  // namespace
}  // namespace lockstep::tests
