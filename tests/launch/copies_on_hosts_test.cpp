// Copies of the state on several hosts: a host that is lost with all its ranks, its agent and its memory costs no more
// than the steps since the last copy.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "comm/control/handshake.h"
#include "launch/copy_exchange.h"
#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/process_state.h"
#include "telemetry/rank_now.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

// Each host's memory is a folder of its own.
class CopiesOnHosts : public ::testing::Test {
 protected:
  CopiesOnHosts() {
    std::ofstream(folder_ / "tiny.toml") << tiny_run(6, 10);
    std::string name = "/dev/shm/lockstep-test-XXXXXX";
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    memory_ = name;
  }
  ~CopiesOnHosts() override { fs::remove_all(memory_); }
  fs::path memory_of(int host) const {
    fs::create_directories(memory_ / std::to_string(host));
    return memory_ / std::to_string(host);
  }
  Arguments arguments(const std::string& out, const Arguments& more) const {
    Arguments all{more.front(), folder_ / "tiny.toml",   "--out", folder_ / out,
                  "--set",      "model.preset=llama-1m", "--set", "train.steps=200",
                  "--set",      "train.save_every=0",    "--set", "train.eval_every=0",
                  "--set",      "train.copy_every=2",    "--set", "optim.schedule=constant"};
    all.insert(all.end(), more.begin() + 1, more.end());
    return all;
  }
  Arguments agent(int host) const {
    return arguments("run",
                     {"launch", "--layout", "dp=2,zero=2", "--hosts", "127.0.0.1,127.0.0.2,127.0.0.3", "--host",
                      fmt::format("127.0.0.{}", host + 1), "--spares", "1", "--memory", memory_of(host).string()});
  }
  std::optional<RankNow> now(int rank) const {
    return read_rank_now(folder_ / fmt::format("run/ranks/rank-{:05}.now", rank));
  }
  void wait_for_step(std::int64_t step) const {
    for (int i = 0; i < 2400; ++i, std::this_thread::sleep_for(25ms))
      if (const auto found = now(0); found && found->doing != DoingKind::ended && found->step >= step) return;
    ADD_FAILURE() << "step " << step << " has not begun";
  }

  TemporaryFolder folder_;
  fs::path memory_;
};

TEST_F(CopiesOnHosts, AHostThatIsLostWithItsMemoryCostsNoMoreThanTheStepsSinceTheLastCopy) {
  ASSERT_EQ(run_program(arguments("unbroken", {"train", "--layout", "dp=2,zero=2"})).code, 0);
  Outcome outcome;
  {
    Program first(agent(0));
    auto second = std::make_unique<Program>(agent(1));
    Program spare(agent(2));
    wait_for_step(60);
    const auto rank = now(1);  // which is on the second host
    ASSERT_TRUE(rank);
    second->signal(SIGKILL);
    ::kill(static_cast<pid_t>(rank->pid), SIGKILL);
    fs::remove_all(memory_of(1));
    outcome = first.wait();
    spare.wait();
    second->wait();
  }
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const auto at = outcome.err.find(" after step ");
  ASSERT_NE(at, std::string::npos) << outcome.err;
  const std::int64_t done = std::stoll(outcome.err.substr(at + 12));
  const std::string log = text_of(folder_ / "run/log.txt");
  const auto from = log.find("resuming from " + memory_.string());
  ASSERT_NE(from, std::string::npos) << log;
  const std::int64_t resumed = std::stoll(log.substr(log.find("/step-", from) + 6));
  EXPECT_LE(done - resumed, 2);
  EXPECT_EQ(results_in(folder_ / "run"), results_in(folder_ / "unbroken"));
  EXPECT_TRUE(fs::is_empty(memory_of(0)));
  EXPECT_TRUE(fs::is_empty(memory_of(2)));
}

// The exchange by itself: what one host wrote is at another, and comes back to whoever lacks it.
class Exchanged : public CopiesOnHosts {
 protected:
  struct Host {
    AgentFolder endpoints;
    CopyExchange exchange;
    Host(const fs::path& run, const fs::path& memory, int agent, const std::string& token)
        : endpoints(run, agent),
          exchange({.folder = memory,
                    .agent = agent,
                    .agents = 3,
                    .address = "127.0.0.1",
                    .token = token,
                    .endpoints = endpoints,
                    .tell = [](const std::string&) {}}) {}
  };
  std::unique_ptr<Host> host(int agent) {
    return std::make_unique<Host>(folder_ / "run", memory_of(agent), agent, token_);
  }
  static void write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  static constexpr const char* kManifest =
      R"({"files":[{"name":"state-0","bytes":100000},{"name":"state-1","bytes":3}],"companions":[]})";
  // The ranks of a host have written a copy, and wait for it to be mirrored.
  void copy(int host, std::int64_t step, std::int64_t committed, const std::string& file, const std::string& text) {
    const fs::path partial = memory_of(host) / fmt::format(".partial-step-{:08}", step);
    write(partial / "manifest.json", kManifest);
    write(partial / file, text);
    write(memory_of(host) / "ready.new", fmt::format(R"({{"step":{},"committed":{}}})", step, committed));
    fs::rename(memory_of(host) / "ready.new", memory_of(host) / "ready");
    for (int i = 0; i < 500; ++i, std::this_thread::sleep_for(10ms)) {
      std::int64_t mirrored = -1;
      if (std::ifstream(memory_of(host) / "mirrored") >> mirrored; mirrored == step) break;
    }
    fs::rename(partial, memory_of(host) / fmt::format("step-{:08}", step));
  }
  void bring(CopyExchange& exchange) {
    exchange.bring();
    for (int i = 0; i < 1000 && exchange.bringing(); ++i) std::this_thread::sleep_for(10ms);
    EXPECT_FALSE(exchange.bringing());
  }
  const std::string token_ = control::Token::make();
  const std::string large_ = std::string(100'000, 'x');
};

TEST_F(Exchanged, WhatAHostHadIsBroughtFromTheOneThatMirroredIt) {
  auto first = host(0), second = host(1), third = host(2);
  copy(0, 7, 0, "state-0", large_);
  copy(1, 7, 0, "state-1", "abc");
  second.reset();
  fs::remove_all(memory_of(1));  // and its memory
  bring(first->exchange);
  bring(third->exchange);
  for (const int there : {0, 2}) {
    EXPECT_EQ(text_of(memory_of(there) / "step-00000007/state-0"), large_);
    EXPECT_EQ(text_of(memory_of(there) / "step-00000007/state-1"), "abc");
    EXPECT_EQ(text_of(memory_of(there) / "step-00000007/manifest.json"), kManifest);
    EXPECT_FALSE(fs::exists(memory_of(there) / "of-1"));
  }
}

TEST_F(Exchanged, OfAStepThatIsNotWholeTheOneBeforeIsTaken) {
  auto first = host(0), second = host(1);
  copy(0, 7, 0, "state-0", large_);
  copy(1, 7, 0, "state-1", "abc");
  copy(0, 8, 7, "state-0", std::string(100'000, 'y'));  // and the other was killed before it wrote its own
  bring(second->exchange);
  EXPECT_EQ(text_of(memory_of(1) / "step-00000007/state-0"), large_);
  EXPECT_FALSE(fs::exists(memory_of(1) / "step-00000008/state-1"));
}

TEST_F(Exchanged, AMirrorHoldsTwoGenerations) {
  auto first = host(0), second = host(1);
  for (std::int64_t step = 1; step <= 5; ++step) copy(0, step, step - 1, "state-0", std::string(1000 - step, 'z'));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(memory_of(1) / "of-0")) names.push_back(entry.path().filename());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("step-00000004", "step-00000005"));
  EXPECT_EQ(text_of(memory_of(1) / "of-0/step-00000005/state-0"), std::string(995, 'z'));
}

}  // namespace
}  // namespace lockstep::tests
