// simulate as a person uses it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::string> kSimulated{
    "--set",    "model.preset=llama-5m", "--set",     "data.seq=128", "--set",   "train.global_batch=64",
    "--layout", "dp=16,pp=2,micro=2",    "--machine", "h100-sxm",     "--nodes", "4"};

Outcome simulated(std::vector<std::string> more, const std::string& command = "simulate") {
  more.insert(more.begin(), kSimulated.begin(), kSimulated.end());
  more.insert(more.begin(), command);
  return run_program(more);
}
nlohmann::json simulated_json(std::vector<std::string> more, const std::string& command = "simulate") {
  more.push_back("--json");
  const Outcome o = simulated(more, command);
  EXPECT_EQ(o.code, 0) << o.err;
  return nlohmann::json::parse(o.out);
}

TEST(SimulateCommand, WithoutSlowRanksItIsTheStepOfThePlan) {
  const nlohmann::json all = simulated_json({}), plan = simulated_json({}, "plan");
  EXPECT_EQ(all["step_seconds"], plan["step_seconds"]);
  EXPECT_EQ(all["plain_step_seconds"], plan["step_seconds"]);
  EXPECT_EQ(all["slowdown"], 1.0);
  EXPECT_EQ(all["slow_ranks"], 0);
  EXPECT_EQ(all["ranks"], 32);
}

TEST(SimulateCommand, SlowRanksMakeStepsLongerAndAreNamed) {
  const nlohmann::json all = simulated_json({"--slow", "10%:2x"});
  EXPECT_EQ(all["slow_ranks"], 3);
  EXPECT_GT(all["slowdown"], 1.0);
  EXPECT_LE(all["slowdown"], 2.0);
  EXPECT_GT(all["exposed_seconds"]["dp"], all["plain_exposed_seconds"]["dp"]);
  int slow = 0;
  for (const auto& stage : all["stages"]) slow += stage["slow_ranks"].get<int>();
  EXPECT_EQ(slow, 3);
  const Outcome o = simulated({"--slow", "10%:2x"});
  EXPECT_THAT(o.out, AllOf(HasSubstr("3 slow ranks"), HasSubstr("held up by"), HasSubstr("best interval"),
                           HasSubstr("Young"), HasSubstr("Daly")));
  EXPECT_EQ(simulated({"--slow", "10%:2x", "--seed", "1"}).out, o.out);
}

// Exponential failures have a closed form (plan/checkpoint_interval.h).
TEST(SimulateCommand, GoodputEqualsTheClosedForm) {
  for (const char* hours : {"500", "5000", "50000"})
    for (const char* every : {"1000", "100000"}) {
      SCOPED_TRACE(std::string(hours) + " hours, every " + every);
      const nlohmann::json month = simulated_json({"--failures", hours, "--save-every", every})["goodput"];
      EXPECT_NEAR(month["mean"].get<double>(), month["closed_form"].get<double>(),
                  0.02 * month["closed_form"].get<double>());
      EXPECT_EQ(month["device_hours_between_failures"], std::stod(hours));
      EXPECT_NEAR(month["run_seconds_between_failures"].get<double>(), std::stod(hours) * 3600 / 32, 1e-6);
      double lost = 0;
      for (const auto& [cause, seconds] : month["lost_seconds"].items()) lost += seconds.get<double>();
      EXPECT_NEAR(month["mean"].get<double>() + lost / (30 * 86400), 1, 1e-6);
    }
}

TEST(SimulateCommand, WithoutAnIntervalItSavesAtTheBest) {
  const nlohmann::json month = simulated_json({"--failures", "1000", "--set", "train.save_every=0"})["goodput"];
  EXPECT_EQ(month["save_every"], month["best_save_every"]);
  EXPECT_EQ(month["closed_form"], month["best_goodput"]);
  EXPECT_NEAR(month["young_seconds"].get<double>(), month["best_seconds"].get<double>(),
              0.05 * month["best_seconds"].get<double>());
  EXPECT_NEAR(month["daly_seconds"].get<double>(), month["best_seconds"].get<double>(),
              0.05 * month["best_seconds"].get<double>());
}

TEST(SimulateCommand, ACheckpointTakesTheBytesOfThePlanOverTheDisk) {
  const nlohmann::json month =
      simulated_json({"--set", "machine.disk_write=1GB/s", "--set", "machine.host_link=10GB/s"})["goodput"];
  const double bytes = month["checkpoint_bytes"];
  EXPECT_GT(bytes, 0);
  EXPECT_DOUBLE_EQ(month["save_write_seconds"], bytes / 1e9);
  EXPECT_DOUBLE_EQ(month["save_stall_seconds"], bytes / 1e10);
  const nlohmann::json waiting =
      simulated_json({"--set", "machine.disk_write=1GB/s", "--set", "train.async_save=false"})["goodput"];
  EXPECT_EQ(waiting["checkpoint_bytes"], month["checkpoint_bytes"]);
  EXPECT_DOUBLE_EQ(waiting["save_stall_seconds"], bytes / 1e9);
  EXPECT_EQ(waiting["save_write_seconds"], 0);
}

TEST(SimulateCommand, WhereNothingFailsThereIsNoMonth) {
  EXPECT_TRUE(simulated_json({"--failures", "0"})["goodput"].is_null());
}

TEST(SimulateCommand, RefusesWhatIsNoSimulation) {
  for (const auto& [more, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--slow", "1%"}, "no share of ranks and factor"},
           {{"--slow", "1%:0.5x"}, "no share of ranks and factor"},
           {{"--slow", "60%:2x", "--slow", "60%:3x"}, "more than all ranks"},
           {{"--jitter", "3"}, "no share"},
       }) {
    const Outcome o = simulated(more);
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_THAT(o.err, HasSubstr(message));
  }
  const Outcome laptop = run_program({"simulate", "--machine", "laptop"});
  EXPECT_EQ(laptop.code, 2);
  EXPECT_THAT(laptop.err, HasSubstr("threads that share cores"));
  EXPECT_EQ(run_program({"simulate"}).code, 2);
}

}  // namespace
}  // namespace lockstep::tests
