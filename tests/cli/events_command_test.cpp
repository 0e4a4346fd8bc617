// events.jsonl as a user finds it: of every rank, through a stop, a resume and a failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

using nlohmann::json;

class EventsOfARun : public ::testing::Test {
 protected:
  EventsOfARun() { std::ofstream(folder_ / "tiny.toml") << tiny_run(8, 30); }
  Outcome train(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"train", folder_ / "tiny.toml", "--out", folder_ / "run"};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  }
  // Steps by rank and kind.
  std::map<int, std::map<std::string, std::vector<std::int64_t>>> events() const {
    std::map<int, std::map<std::string, std::vector<std::int64_t>>> found;
    std::ifstream in(folder_ / "run/events.jsonl");
    for (std::string line; std::getline(in, line);) {
      const json event = json::parse(line);
      EXPECT_EQ(event.size(), event.contains("lost") ? 8u : 7u) << line;
      EXPECT_GT(event["time"].get<double>(), 1.6e9) << line;
      EXPECT_EQ(event["error"], 0.0) << "one host: " << line;
      EXPECT_TRUE(event["seconds"].is_null() || event["seconds"].get<double>() >= 0) << line;
      EXPECT_TRUE(event["text"].is_string()) << line;
      found[event["rank"]][event["kind"]].push_back(event["step"]);
    }
    return found;
  }
  TemporaryFolder folder_;
};

using Steps = std::vector<std::int64_t>;

TEST_F(EventsOfARun, AreOfEveryRankAndContinueWithARunThatIsResumed) {
  ASSERT_EQ(train({"--set", "train.steps=4", "--ranks", "2"}).code, 0);
  ASSERT_EQ(train({"--resume", "--ranks", "2", "--set", "train.steps=6"}).code, 0);
  const auto found = events();
  ASSERT_EQ(found.size(), 2u);
  for (const auto& [rank, kinds] : found) {
    EXPECT_EQ(kinds.at("start"), (Steps{0, 4})) << rank;
    EXPECT_EQ(kinds.at("step"), (Steps{1, 2, 3, 4, 5, 6})) << rank;
    EXPECT_EQ(kinds.at("saved").back(), 6) << rank;
    EXPECT_EQ(kinds.at("end"), (Steps{4, 6})) << rank;
  }
  ASSERT_EQ(train({"--overwrite", "--set", "train.steps=2"}).code, 0);
  EXPECT_EQ(events().at(0).at("step"), (Steps{1, 2}));
  EXPECT_EQ(events().at(0).at("start"), (Steps{0}));
}

TEST_F(EventsOfARun, HaveTheValueThatIsNotFinite) {
  ASSERT_EQ(train({"--set", "optim.lr=1000", "--set", "optim.clip=0", "--set", "optim.warmup=0", "--set",
                   "optim.name=sgd", "--set", "train.steps=50"})
                .code,
            1);
  const auto found = events();
  ASSERT_TRUE(found.at(0).contains("fault"));
  EXPECT_TRUE(found.at(0).contains("end"));
}

}  // namespace
}  // namespace lockstep::tests
