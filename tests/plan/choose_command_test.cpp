// choose and plan --machine as a person uses them: what they print can be typed, and mistakes get one line.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kChosenRun{"--set", "model.preset=llama-15m", "--set", "data.seq=256",
                                          "--set", "train.global_batch=32",  "--set", "precision.compute=bf16"};

std::vector<std::string> on_machine(const std::string& command, const std::vector<std::string>& more) {
  std::vector<std::string> all{command};
  all.insert(all.end(), kChosenRun.begin(), kChosenRun.end());
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

nlohmann::json json_on_machine(const std::string& command, std::vector<std::string> more) {
  more.push_back("--json");
  const Outcome o = run_program(on_machine(command, more));
  EXPECT_EQ(o.code, 0) << o.err;
  return nlohmann::json::parse(o.out);
}

void expect_prediction(const nlohmann::json& json) {
  EXPECT_GT(json["step_seconds"].get<double>(), 0);
  EXPECT_GT(json["mfu"].get<double>(), 0);
  EXPECT_LT(json["mfu"].get<double>(), 1);
  EXPECT_GT(json["peak_bytes"].get<std::int64_t>(), 0);
  EXPECT_TRUE(json.contains("bubble"));
  for (const char* axis : {"dp", "pp", "cp", "tp"}) EXPECT_GE(json["exposed_seconds"][axis].get<double>(), 0) << axis;
}

TEST(PlanOnAMachine, GivesTimesToPrograms) {
  const std::vector<std::string> asked{"--set",     "run.device=cuda", "--layout", "dp=2,pp=2,tp=2,micro=4",
                                       "--machine", "h100-sxm",        "--nodes",  "1"};
  const nlohmann::json json = json_on_machine("plan", asked);
  expect_prediction(json);
  EXPECT_GT(json["bubble"].get<double>(), 0);
  EXPECT_GT(json["exposed_seconds"]["tp"].get<double>(), 0);
  // A setting of the machine acts.
  std::vector<std::string> slower = asked;
  slower.insert(slower.end(), {"--set", "machine.intra_node.bandwidth=1GB/s"});
  EXPECT_GT(json_on_machine("plan", slower)["step_seconds"].get<double>(), json["step_seconds"].get<double>());
}

TEST(PlanOnAMachine, RefusesInOneLine) {
  const auto refused = [](const std::vector<std::string>& more, const std::string& text) {
    const Outcome o = run_program(on_machine("plan", more));
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_THAT(o.err, HasSubstr(text));
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
  };
  refused({"--machine", "a-machine-of-dreams"}, "h100-sxm");
  refused({"--set", "machine.nodes=2"}, "--machine");
  refused({"--set", "run.device=cuda", "--layout", "dp=32", "--machine", "h100-sxm", "--nodes", "2"},
          "machine.nodes=4");
  refused({"--set", "machine.no_such_key=1", "--machine", "h100-sxm"}, "no_such_key");
  // What the remedy names is enough.
  EXPECT_EQ(run_program(on_machine("plan", {"--set", "run.device=cuda", "--layout", "dp=32", "--machine", "h100-sxm",
                                            "--set", "machine.nodes=4"}))
                .code,
            0);
}

TEST(Choose, EndsWithARunFileThatCanBePlanned) {
  const TemporaryFolder folder;
  const std::string file = folder / "chosen.toml";
  const Outcome o =
      run_program(on_machine("choose", {"--machine", "h100-sxm", "--nodes", "1", "--search", "--out", file}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("Is one device fast enough?"));
  EXPECT_THAT(o.out, HasSubstr("as fast as the walk's layout"));
  const Outcome planned = run_program({"plan", file, "--machine", "h100-sxm", "--nodes", "1", "--json"});
  ASSERT_EQ(planned.code, 0) << planned.err;
  expect_prediction(nlohmann::json::parse(planned.out));
}

TEST(Choose, ListsLayoutsThatPlanTimesTheSame) {
  const nlohmann::json json = json_on_machine("choose", {"--machine", "h100-sxm", "--nodes", "1", "--search"});
  ASSERT_FALSE(json["layouts"].empty());
  double before = 0;
  for (const nlohmann::json& layout : json["layouts"]) {
    expect_prediction(layout);
    EXPECT_GE(layout["step_seconds"].get<double>(), before);
    before = layout["step_seconds"].get<double>();
  }
  const nlohmann::json& best = json["layouts"][0];
  EXPECT_LE(best["step_seconds"].get<double>(), json["walked"]["step_seconds"].get<double>());
  if (json.contains("plain_dp")) {
    EXPECT_LE(best["step_seconds"].get<double>(), json["plain_dp"]["step_seconds"].get<double>());
  }
  const nlohmann::json planned =
      json_on_machine("plan", {"--layout", best["layout"], "--set",
                               fmt::format("memory.recompute={}", best["recompute"].get<std::string>()), "--set",
                               "run.device=cuda", "--machine", "h100-sxm", "--nodes", "1"});
  EXPECT_NEAR(planned["step_seconds"].get<double>() / best["step_seconds"].get<double>(), 1, 1e-9);
}

TEST(Choose, RefusesInOneLine) {
  const auto refused = [](const std::vector<std::string>& more, int code, const std::string& text) {
    const Outcome o = run_program(on_machine("choose", more));
    EXPECT_EQ(o.code, code) << o.err;
    EXPECT_THAT(o.err, HasSubstr(text));
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
  };
  refused({}, 2, "--machine");
  refused({"--machine", "laptop"}, 2, "lockstep compare");
  refused({"--machine", "h100-sxm", "--nodes", "1", "--set", "machine.memory=700MiB"}, 3, "missing");
}

}  // namespace
}  // namespace lockstep::tests
