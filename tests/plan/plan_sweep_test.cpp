// plan --sweep: each row is the plan with that setting, and what cannot be is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::string> kSweptRun{"plan",         "--set", "model.preset=llama-5m", "--set",
                                         "data.seq=128", "--set", "train.global_batch=64", "--machine",
                                         "h100-sxm"};

Outcome swept(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = kSweptRun;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments);
}
nlohmann::json swept_json(std::vector<std::string> more) {
  more.push_back("--json");
  const Outcome o = swept(more);
  EXPECT_EQ(o.code, 0) << o.err;
  return nlohmann::json::parse(o.out);
}

const char* const kPredictedKeys[] = {"machine",         "step_seconds",    "tokens_per_second", "mfu",       "bubble",
                                      "exposed_seconds", "compute_seconds", "offload_seconds",   "peak_bytes"};

TEST(PlanSweep, ARowIsThePlanWithThatSetting) {
  for (const auto& [key, values] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"train.global_batch", {"32", "64"}},
           {"data.seq", {"64", "128"}},
           {"layout.micro", {"1", "2", "4"}},
           {"machine.inter_node.bandwidth", {"5GB/s", "50GB/s"}}}) {
    std::string all = key + "=";
    for (const std::string& value : values) all += (all.back() == '=' ? "" : ",") + value;
    const nlohmann::json rows = swept_json({"--layout", "dp=16", "--sweep", all});
    ASSERT_EQ(rows.size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const nlohmann::json one = swept_json({"--layout", "dp=16", "--set", key + "=" + values[i]});
      EXPECT_EQ(rows[i]["value"], values[i]);
      for (const char* name : kPredictedKeys) EXPECT_EQ(rows[i][name], one[name]) << key << " " << name;
      EXPECT_TRUE(rows[i]["fits"]);
    }
  }
}

TEST(PlanSweep, AnImpossibleValueIsARowWithItsReason) {
  const nlohmann::json rows = swept_json({"--layout", "dp=16", "--sweep", "layout.micro=1,3,4"});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_FALSE(rows[0].contains("impossible"));
  EXPECT_THAT(rows[1]["impossible"].get<std::string>(), HasSubstr("micro"));
  EXPECT_FALSE(rows[1].contains("step_seconds"));
  EXPECT_FALSE(rows[2].contains("impossible"));
  EXPECT_THAT(swept({"--layout", "dp=16", "--sweep", "layout.micro=1,3,4"}).out, HasSubstr("3: impossible: "));
}

TEST(PlanSweep, RefusesWhereNothingIsPossible) {
  for (const auto& [more, message] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--layout", "dp=16", "--sweep", "layout.micro=3,5"}, "no value is possible; 3: "},
           {{"--sweep", "train.no_such=1,2"}, "no value is possible; 1: "},
           {{"--sweep", "nodes"}, "no KEY=V1,V2"},
           {{"--sweep", "nodes=1,,2"}, "a value is empty"},
           {{"--sweep", "nodes=1", "--fit"}, "excludes"},
           {{"--svg", "x.svg"}, "no picture"}}) {
    const Outcome o = swept(more);
    EXPECT_EQ(o.code, 2) << o.out;
    EXPECT_THAT(o.err, HasSubstr(message));
  }
  EXPECT_EQ(run_program({"plan", "--sweep", "data.seq=64,128"}).code, 2);
}

TEST(PlanSweep, StrongScalingKeepsTheBatchAndWeakScalingWhatAReplicaDoes) {
  const nlohmann::json rows = swept_json({"--layout", "dp=8,micro=4", "--sweep", "nodes=1,2,4", "--scaling", "both"});
  ASSERT_EQ(rows.size(), 6u);
  for (std::size_t i = 0; i < 3; ++i) {
    const nlohmann::json &strong = rows[i], &weak = rows[i + 3];
    EXPECT_EQ(strong["scaling"], "strong");
    EXPECT_EQ(weak["scaling"], "weak");
    for (const nlohmann::json& row : {strong, weak}) {
      EXPECT_EQ(row["nodes"], 1 << i);
      EXPECT_EQ(row["ranks"], 8 << i);
      const double per_node = row["tokens_per_second"].get<double>() / (1 << i);
      EXPECT_NEAR(row["efficiency"].get<double>(), per_node / rows[0]["tokens_per_second"].get<double>(), 1e-12);
    }
    EXPECT_EQ(strong["global_batch"], 64);
    EXPECT_EQ(weak["global_batch"], 64 << i);
    EXPECT_THAT(weak["layout"].get<std::string>(), HasSubstr("micro=4"));
  }
  EXPECT_THAT(rows[1]["layout"].get<std::string>(), HasSubstr("micro=2"));
  EXPECT_EQ(rows[0]["efficiency"], 1.0);
  EXPECT_GT(rows[5]["efficiency"], rows[2]["efficiency"]);
  // 128 ranks have half a sample of the batch each.
  EXPECT_THAT(swept_json({"--layout", "dp=8,micro=4", "--sweep", "nodes=1,16"})[1]["impossible"].get<std::string>(),
              HasSubstr("is not split by dp=128"));
}

TEST(PlanSweep, DrawsStepTimeAndMemoryAndScaling) {
  const TemporaryFolder folder;
  const auto drawn = [&](const std::vector<std::string>& more, const std::string& name) {
    std::vector<std::string> arguments = more;
    arguments.insert(arguments.end(), {"--svg", folder / name});
    const Outcome o = swept(arguments);
    EXPECT_EQ(o.code, 0) << o.err;
    std::ifstream in(folder / name);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_THAT(drawn({"--layout", "dp=16", "--sweep", "machine.inter_node.bandwidth=5GB/s,10GB/s,50GB/s"}, "a.svg"),
              AllOf(HasSubstr("step time"), HasSubstr("memory"), HasSubstr("(GB/s)"), HasSubstr("</svg>")));
  EXPECT_THAT(drawn({"--layout", "dp=16,zero=1", "--sweep", "layout.overlap=on,off"}, "b.svg"),
              HasSubstr("layout.overlap: 1 on, 2 off"));
  EXPECT_THAT(drawn({"--layout", "dp=8", "--sweep", "nodes=1,2,4", "--scaling", "both"}, "c.svg"),
              AllOf(HasSubstr("ideal, strong"), HasSubstr("ideal, weak"), HasSubstr("efficiency")));
}

}  // namespace
}  // namespace lockstep::tests
