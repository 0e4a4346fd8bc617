// What every rank of a run leaves of itself in the run folder, as a user finds it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/rank_now.h"

namespace lockstep::tests {
namespace {

using Json = nlohmann::json;

std::vector<Json> json_lines(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

class RankRecordsOfARun : public ::testing::Test {
 protected:
  RankRecordsOfARun() { std::ofstream(folder_ / "tiny.toml") << tiny_run(8, 30); }
  std::vector<std::string> command(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"train", folder_ / "tiny.toml", "--out", folder_ / "run"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void train(const std::vector<std::string>& more) const {
    const Outcome outcome = run_program(command(more));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, ::testing::ContainsRegex("\ntime: .*[a-z_]+ [0-9]+%"));
  }
  std::filesystem::path ranks(const std::string& file) const {
    return std::filesystem::path(folder_ / "run") / "ranks" / file;
  }
  TemporaryFolder folder_;
};

TEST_F(RankRecordsOfARun, SayOfEveryStepWhereItsTimeWent) {
  train({"--layout", "dp=2,pp=2,micro=2"});
  std::vector<Json> steps = json_lines(folder_ / "run/metrics.jsonl");
  std::erase_if(steps, [](const Json& line) { return !line.contains("loss"); });
  ASSERT_EQ(steps.size(), 6u);
  std::vector<std::vector<Json>> records;
  for (int rank = 0; rank < 4; ++rank) {
    records.push_back(json_lines(ranks("rank-0000" + std::to_string(rank) + ".jsonl")));
    ASSERT_EQ(records.back().size(), 6u);
  }
  for (std::size_t s = 0; s < 6; ++s) {
    for (const auto& [use, over] : steps[s]["uses"].items()) {
      double sum = 0, most = 0;
      for (const auto& rank : records) {
        const double ms = rank[s]["uses"].value(use, 0.0);
        sum += ms;
        most = std::max(most, ms);
      }
      EXPECT_NEAR(over["mean_ms"].get<double>(), sum / 4, 1e-9 * sum) << use;
      EXPECT_EQ(over["max_ms"].get<double>(), most) << use;
      EXPECT_EQ(records[over["rank"].get<std::size_t>()][s]["uses"][use].get<double>(), most) << use;
    }
    EXPECT_EQ(records[0][s]["sent"], steps[s]["sent"]);
    EXPECT_GT(steps[s]["sent"]["pp"]["bytes"].get<std::int64_t>(), 0);
    EXPECT_GT(steps[s]["sent"]["dp"]["bytes"].get<std::int64_t>(), 0);
    EXPECT_FALSE(steps[s]["sent"].contains("tp"));
    for (const auto& rank : records) {
      double sum = 0;
      for (const auto& [use, ms] : rank[s]["uses"].items()) sum += ms.get<double>();
      EXPECT_EQ(rank[s]["step"].get<std::size_t>(), s + 1);
      EXPECT_NEAR(sum, rank[s]["ms"].get<double>(), 1e-9 * sum);
    }
  }
  for (int rank = 0; rank < 4; ++rank) {
    const auto now = read_rank_now(ranks("rank-0000" + std::to_string(rank) + ".now"));
    ASSERT_TRUE(now);
    EXPECT_EQ(now->doing, DoingKind::ended);
    EXPECT_EQ(now->step, 6);
  }
}

// plan.json is what the records are read beside: of each rank, to the byte.
TEST_F(RankRecordsOfARun, AgreeWithThePlanBesideThem) {
  train({"--layout", "dp=2,pp=2,micro=2", "--set", "train.async_save=false"});
  const Json plan = Json::parse(std::ifstream(folder_ / "run/plan.json"));
  EXPECT_EQ(plan["ranks"], 4);
  EXPECT_EQ(plan["axes"], (Json{{"dp", 2}, {"pp", 2}, {"cp", 1}, {"tp", 1}}));
  EXPECT_EQ(plan["layout"], "dp=2,pp=2,micro=2");
  EXPECT_GT(plan["link"]["bytes_per_s"].get<double>(), 0);
  EXPECT_NEAR(plan["ideal"]["bubble"].get<double>(), 1.0 / 3, 1e-12) << "(p - 1) / (m + p - 1)";
  std::map<int, std::size_t> spans;
  for (const Json& span : plan["ideal"]["spans"]) ++spans[span["rank"].get<int>()];
  EXPECT_EQ(spans, (std::map<int, std::size_t>{{0, 4}, {1, 4}})) << "two forwards and two backwards, of each stage";
  EXPECT_EQ(plan["ideal"]["spans"][0], (Json{{"rank", 0}, {"name", "F0"}, {"begin", 0.0}, {"end", 1.0 / 9}}));
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const std::vector<Json> records = json_lines(ranks("rank-0000" + std::to_string(rank) + ".jsonl"));
    ASSERT_FALSE(records.empty());
    std::int64_t with_memory = 0;
    Json peak;
    for (const Json& line : records)
      if (line.contains("peak_bytes")) peak = line["peak_bytes"], ++with_memory;
    EXPECT_LT(with_memory, 3) << "only where it has changed";
    EXPECT_EQ(plan["memory"][rank]["rank"], rank);
    EXPECT_EQ(plan["memory"][rank]["bytes"], peak) << rank;
    for (const char* axis : {"dp", "pp"})
      for (const char* what : {"calls", "bytes"})
        EXPECT_EQ(plan["sent"][rank][axis][what], records[1]["sent"][axis][what]) << rank << axis;
  }
}

TEST_F(RankRecordsOfARun, AreOfEveryNthStepOrOfNone) {
  train({"--set", "run.record_every=3"});
  std::vector<std::int64_t> steps;
  for (const Json& line : json_lines(ranks("rank-00000.jsonl"))) steps.push_back(line["step"]);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 3, 6}));
  std::ofstream(folder_ / "run/trace.json") << "of the run before";
  train({"--set", "run.record_every=0", "--overwrite"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/trace.json"));
  EXPECT_FALSE(std::filesystem::exists(ranks("rank-00000.jsonl"))) << "--overwrite removes the old ones";
  EXPECT_TRUE(std::filesystem::exists(ranks("rank-00000.now")));
}

TEST_F(RankRecordsOfARun, ContinueWithARunThatIsResumed) {
  train({"--set", "train.steps=4", "--ranks", "2"});
  train({"--resume", "--ranks", "2"});
  for (const char* file : {"rank-00000.jsonl", "rank-00001.jsonl"}) {
    std::vector<std::int64_t> steps;
    for (const Json& line : json_lines(ranks(file))) steps.push_back(line["step"]);
    EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6})) << file;
  }
}

}  // namespace
}  // namespace lockstep::tests
