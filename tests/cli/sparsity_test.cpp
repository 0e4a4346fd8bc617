// A run under a growing mask, as a user has it: what it says, what plan says of it beforehand, and its events.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

const std::string kSynthetic = std::string(LOCKSTEP_SOURCE_DIR) + "/configs/runs/synthetic.toml";

std::vector<std::string> sparse(std::initializer_list<std::string> command, std::initializer_list<std::string> more) {
  std::vector<std::string> all(command);
  for (const std::string& set :
       {std::string("train.eval_every=0"), std::string("model.layers=2"), std::string("data.seq=16"),
        std::string("optim.decay=3"), std::string("optim.warmup=2"), std::string("precision.compute=bf16"),
        std::string("sparsity.kind=unstructured"), std::string("sparsity.share=0.75"), std::string("sparsity.end=8"),
        std::string("sparsity.every=4")})
    all.insert(all.end(), {"--set", set});
  all.insert(all.end(), more);
  return all;
}

struct Relayouts {
  std::vector<std::int64_t> steps;
  std::vector<std::string> texts;  // rank 0's
  std::size_t of_others = 0;
};

Relayouts relayouts_in(const std::string& run) {
  Relayouts found;
  std::ifstream file(run + "/events.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event["kind"] != "relayout") continue;
    EXPECT_GE(event["seconds"].get<double>(), 0);
    if (event["rank"] != 0) {
      ++found.of_others;
      continue;
    }
    found.steps.push_back(event["step"]);
    found.texts.push_back(event["text"]);
  }
  return found;
}

TEST(SparseTraining, TellsItsRelayoutsAndPlanHasTheirBytesBeforehand) {
  const TemporaryFolder folder;
  const Outcome planned = run_program(sparse({"plan", kSynthetic, "--json"}, {"--layout", "dp=2"}));
  ASSERT_EQ(planned.code, 0) << planned.err;
  const auto plan = nlohmann::json::parse(planned.out);
  const auto& relayouts = plan["relayouts"];
  ASSERT_EQ(relayouts.size(), 2U) << planned.out;
  EXPECT_TRUE(plan["relayouts_exact"].get<bool>());

  const Outcome run = run_program(
      sparse({"train", kSynthetic, "--out", folder / "run"}, {"--layout", "dp=2", "--set", "train.steps=12"}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out + run.err, HasSubstr("[sparsity] changes what is learned on purpose"));
  const Relayouts told = relayouts_in(folder / "run");
  EXPECT_EQ(told.steps, (std::vector<std::int64_t>{5, 9}));  // before these
  EXPECT_EQ(told.of_others, 2U);
  ASSERT_EQ(told.texts.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_THAT(told.texts[i],
                HasSubstr(fmt::format("{} bytes before, {} after", relayouts[i]["before"].get<std::int64_t>(),
                                      relayouts[i]["after"].get<std::int64_t>())));
  EXPECT_LT(relayouts[1]["after"].get<double>(), 0.7 * relayouts[0]["before"].get<double>());
  EXPECT_EQ(relayouts[0]["after"], relayouts[1]["before"]);

  const Outcome table = run_program(sparse({"plan", kSynthetic}, {"--layout", "dp=2,zero=1"}));
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("at most "));
  EXPECT_THAT(table.out, HasSubstr("with 0.75 of the blocks' matrices masked"));
}

// What is held and at the peak, of a run that saves: as planned, in the records of its steps.
TEST(SparseTraining, HoldsWhatIsPlanned) {
  const TemporaryFolder folder;
  for (const char* save : {"true", "false"}) {
    const std::string set = fmt::format("train.async_save={}", save), out = folder / save;
    const Outcome planned = run_program(sparse({"plan", kSynthetic, "--json"}, {"--set", set}));
    ASSERT_EQ(planned.code, 0) << planned.err;
    const auto plan = nlohmann::json::parse(planned.out);
    const Outcome run = run_program(sparse({"train", kSynthetic, "--out", out},
                                           {"--set", set, "--set", "train.steps=14", "--set", "train.save_every=11"}));
    ASSERT_EQ(run.code, 0) << run.err;
    std::ifstream file(out + "/metrics.jsonl");
    nlohmann::json first, last;
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line);
      if (!record.contains("loss") || !record.contains("bytes")) continue;
      if (first.is_null()) first = record;
      last = record;
    }
    EXPECT_EQ(first["bytes"]["optimizer"], plan["relayouts"].front()["before"]);
    EXPECT_EQ(last["bytes"]["optimizer"], plan["relayouts"].back()["after"]);
    for (const auto& [tag, bytes] : last["peak_bytes"].items()) EXPECT_EQ(bytes, plan["tags"][tag]["peak"]) << tag;
  }
}

TEST(SparseTraining, IsVerifiedAcrossLayouts) {
  const Outcome o = run_program({"verify", kSynthetic, "--layout", "dp=2,zero=1", "--set", "sparsity.kind=2:4", "--set",
                                 "sparsity.end=2", "--set", "data.seq=16", "--precision", "fp64"});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
}

}  // namespace
}  // namespace lockstep::tests
