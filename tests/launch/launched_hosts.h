// A run of several agents, each with an address of this machine as its host, as tests of launch start it.
#pragma once
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <memory>
#include <thread>

#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/rank_now.h"

namespace lockstep::tests {

class LaunchedHosts : public ::testing::Test {
 protected:
  using Arguments = std::vector<std::string>;
  LaunchedHosts() { std::ofstream(folder_ / "tiny.toml") << tiny_run(6, 20); }

  static std::string host(int agent) { return agent == 0 ? "127.0.0.1" : fmt::format("127.0.0.{}", 41 + agent); }
  std::string out() const { return folder_ / "run"; }

  Arguments training(const std::string& command, const std::string& out, int steps, const Arguments& more = {}) const {
    Arguments all{command, folder_ / "tiny.toml",     "--out",   out,
                  "--set", "model.preset=llama-1m",   "--set",   fmt::format("train.steps={}", steps),
                  "--set", "train.save_every=20",     "--set",   "train.eval_every=0",
                  "--set", "optim.schedule=constant", "--ranks", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::unique_ptr<Program> agent(int number, int steps, const Arguments& more = {}) const {
    Arguments all = training("launch", out(), steps, more);
    all.insert(all.end(), {"--hosts", host(0) + "," + host(1), "--host", host(number)});
    return std::make_unique<Program>(all);
  }

  template <class What>
  static bool comes(const What& what, double most_seconds = 60) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(most_seconds);
    while (std::chrono::steady_clock::now() < until) {
      if (what()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }
  std::optional<RankNow> now(int rank) const {
    return read_rank_now(fmt::format("{}/ranks/rank-{:05}.now", out(), rank));
  }
  bool reaches(std::int64_t step) const {
    return comes([&] {
      const auto found = now(0);
      return found && found->doing != DoingKind::ended && found->step >= step;
    });
  }

  TemporaryFolder folder_;
};

}  // namespace lockstep::tests
