// A run that names a machine: what is predicted before it, scored after it, and refined by it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "spec/machine/machine_spec.h"
#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class Prediction : public ::testing::Test {
 protected:
  Prediction() { std::ofstream(folder_ / "tiny.toml") << tiny_run(8, 30); }
  Outcome train(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"train", folder_ / "tiny.toml", "--out", folder_ / "run"};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  }
  Json plan() const { return Json::parse(text_of(folder_ / "run/plan.json")); }
  // Records of five steps that took these milliseconds, `waited` of them along dp.
  void write_steps(double ms, double waited) const {
    std::ofstream out(folder_ / "run/metrics.jsonl", std::ios::trunc);
    for (int step = 1; step <= 5; ++step)
      out << Json{{"step", step},
                  {"loss", 1.0},
                  {"step_ms", ms},
                  {"uses",
                   {{"compute", {{"mean_ms", ms - waited}, {"max_ms", ms - waited}, {"rank", 0}}},
                    {"wait_dp", {{"mean_ms", waited}, {"max_ms", waited}, {"rank", 0}}}}},
                  {"slowest_rank", 0}}
                 .dump()
          << "\n";
  }
  TemporaryFolder folder_;
};

TEST_F(Prediction, IsInThePlanAndScoredAtTheEndAndInTheReport) {
  const Outcome o = train({"--layout", "dp=1,pp=2,micro=2", "--machine", "laptop"});
  ASSERT_EQ(o.code, 0) << o.err;
  const Json predicted = plan()["predicted"];
  EXPECT_EQ(predicted["machine"], "laptop");
  for (const char* key : {"step_seconds", "mfu", "bubble", "compute_seconds"})
    EXPECT_GT(predicted[key].get<double>(), 0) << key;
  EXPECT_GT(predicted["exposed_seconds"]["pp"].get<double>(), 0);
  const Outcome said =
      run_program({"plan", folder_ / "tiny.toml", "--layout", "dp=1,pp=2,micro=2", "--machine", "laptop", "--json"});
  EXPECT_EQ(predicted["step_seconds"], Json::parse(said.out)["step_seconds"]);
  for (const char* line : {"step: .* predicted, .* measured, error [+-][0-9.]+%", "exposed, pp: .* error [+-]",
                           "bubble: .*% predicted, .*% measured, error [+-]"})
    EXPECT_THAT(o.out, ContainsRegex(line));
  EXPECT_THAT(text_of(folder_ / "run/run.toml"), HasSubstr("machine = \"laptop\""));

  const Outcome report = run_program({"report", folder_ / "run", "--html", folder_ / "report.html"});
  ASSERT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(report.out, HasSubstr("Prediction (machine laptop)\n"));
  for (const char* line : {"step +.* predicted, .* measured, error [+-]", "exposed, pp +.* error [+-]",
                           "bubble +.*% predicted, .*% measured, error [+-]"})
    EXPECT_THAT(report.out, ContainsRegex(line));
  EXPECT_THAT(text_of(folder_ / "report.html"), HasSubstr("Prediction (machine laptop)"));
  const Json json = Json::parse(run_program({"report", folder_ / "run", "--json"}).out)["prediction"];
  const double measured = json["step_seconds"]["measured"];
  EXPECT_NEAR(json["step_seconds"]["error"].get<double>(), predicted["step_seconds"].get<double>() / measured - 1,
              1e-9);
}

TEST_F(Prediction, IsNotMadeWithoutAMachine) {
  const Outcome o = train({});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(plan().contains("predicted"));
  EXPECT_THAT(o.out, Not(HasSubstr("predicted, error")));
  EXPECT_THAT(run_program({"report", folder_ / "run"}).out, Not(HasSubstr("Prediction")));
  EXPECT_THAT(text_of(folder_ / "run/run.toml"), Not(HasSubstr("machine")));
}

TEST_F(Prediction, RefusesAMachineThatIsNotThereOrTooSmallBeforeAnythingStarts) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& why) {
    const Outcome o = train(more);
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_THAT(o.err, HasSubstr(why));
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run")) << why;
  };
  refused({"--machine", "h100x"}, "there is no machine 'h100x'; name a machine file or one of");
  refused({"--set", "run.machine=h100x"}, "there is no machine 'h100x'");
  refused({"--machine", folder_ / "none.toml"}, "none.toml");
  refused({"--machine", "h200", "--layout", "dp=2"},
          "the layout has 2 ranks, and machine h200 has 1 devices (1 nodes of 1); use a smaller layout");
  MachineSpec two = find_machine("laptop");
  two.nodes = 2;
  two.inter_node.bandwidth = 1e8;
  std::ofstream(folder_ / "two.toml") << to_toml(two);
  refused({"--machine", folder_ / "two.toml"},
          "2 nodes of kind \"threads\", whose messages between nodes have no price");
}

TEST_F(Prediction, ReadsAMachineOfARunFileFromItsFolder) {
  std::ofstream(folder_ / "mine.toml") << to_toml(find_machine("laptop"));
  std::ofstream(folder_ / "tiny.toml", std::ios::app) << "machine = \"mine.toml\"\n";
  ASSERT_EQ(train({"--set", "train.steps=3"}).code, 0);
  EXPECT_EQ(plan()["predicted"]["machine"], "laptop");
  EXPECT_THAT(text_of(folder_ / "run/run.toml"), HasSubstr(folder_ / "mine.toml"));
  // A run that resumes without it goes on.
  const Outcome o = train({"--resume", "--set", "run.machine=\"\""});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(plan().contains("predicted"));
}

TEST_F(Prediction, RefinesAFalsifiedFileByARun) {
  ASSERT_EQ(train({"--layout", "dp=2", "--machine", "laptop", "--quiet"}).code, 0);
  const Json predicted = plan()["predicted"];
  write_steps(1e3 * predicted["step_seconds"].get<double>(), 1e3 * predicted["exposed_seconds"]["dp"].get<double>());
  MachineSpec wrong = find_machine("laptop");
  wrong.products.best *= 1.5;
  wrong.name = "wrong";
  std::ofstream(folder_ / "wrong.toml") << to_toml(wrong);
  const std::string run = folder_ / "run", out = folder_ / "refined.toml";
  const Outcome o =
      run_program({"bench", "machine", "--refine", run, "--machine", folder_ / "wrong.toml", "--out", out});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, ContainsRegex("median error of a step: [0-9.]+% before, [0-9].[0-9]% after"));
  EXPECT_THAT(o.out, HasSubstr(fmt::format("products.best {:.4g} -> ", wrong.products.best)));
  const MachineSpec refined = read_machine(out);
  EXPECT_LT(refined.products.best, wrong.products.best);
  EXPECT_THAT(refined.source, HasSubstr("refined by the times of 1 run"));
  const Outcome again = run_program({"plan", folder_ / "tiny.toml", "--layout", "dp=2", "--machine", out, "--json"});
  EXPECT_NEAR(Json::parse(again.out)["step_seconds"].get<double>() / predicted["step_seconds"].get<double>(), 1, 0.1);

  // Its own machine explains it.
  const Outcome own = run_program({"bench", "machine", "--refine", run});
  EXPECT_EQ(own.code, 0) << own.err;
  EXPECT_THAT(own.out, HasSubstr("changed: nothing"));
  write_steps(1, 0);
  std::filesystem::resize_file(folder_ / "run/metrics.jsonl", 0);
  EXPECT_THAT(run_program({"bench", "machine", "--refine", run}).err, HasSubstr("has the times of 0 steps"));
  EXPECT_THAT(run_program({"bench", "machine", "--refine", folder_ / "none"}).err, HasSubstr("is no run folder"));
  EXPECT_EQ(run_program({"bench", "machine", "--machine", "laptop"}).code, 2);
}

TEST_F(Prediction, TakesTheTimesOfACompareFromTheMachinesFile) {
  const std::vector<std::string> arguments{
      "compare", folder_ / "tiny.toml", "--layout", "dp=2", "--layout", "tp=2", "--layout", "dp=1", "--steps",
      "3",       "--machine",           "laptop"};
  const Outcome o = run_program(arguments);
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* part : {"repeats", "prediction: 3 layouts, median error ", "the three predicted fastest: "})
    EXPECT_THAT(o.out, HasSubstr(part));
  std::vector<std::string> as_json = arguments;
  as_json.emplace_back("--json");
  const Json json = Json::parse(run_program(as_json).out);
  EXPECT_EQ(json["machine"], "laptop");
  EXPECT_EQ(json["score"]["predicted_fastest"].size(), 3u);
  for (const Json& layout : json["layouts"]) {
    const Outcome said = run_program({"plan", folder_ / "tiny.toml", "--layout", layout["layout"].get<std::string>(),
                                      "--machine", "laptop", "--json"});
    EXPECT_EQ(layout["predicted"]["step_seconds"], Json::parse(said.out)["step_seconds"]) << layout["layout"];
    EXPECT_GE(layout["repeatability"].get<double>(), 0);
  }
  std::vector<std::string> linked = arguments;
  linked.insert(linked.end(), {"--link", "1GB/s,50us"});
  EXPECT_EQ(run_program(linked).code, 2);
}

}  // namespace
}  // namespace lockstep::tests
