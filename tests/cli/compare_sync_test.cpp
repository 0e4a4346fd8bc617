// compare --sync as a user meets it: every technique beside full synchronization, on a slow link.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/program.h"

namespace lockstep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kSyncRun = std::string(LOCKSTEP_SOURCE_DIR) + "/configs/runs/synthetic.toml";

// Two ranks of a model of one layer, by default on a link that a step of messages takes tens of milliseconds of.
std::vector<std::string> compare_techniques(const std::vector<std::string>& more,
                                            const std::string& link = "5MB/s,1ms") {
  std::vector<std::string> all{"compare",  kSyncRun,
                               "--layout", "dp=2",
                               "--set",    "model.width=64",
                               "--set",    "model.layers=1",
                               "--set",    "data.seq=16",
                               "--set",    "train.global_batch=4",
                               "--set",    "model.heads=2",
                               "--set",    "model.kv_heads=2",
                               "--set",    "model.ffn_width=128",
                               "--set",    "optim.warmup=4",
                               "--set",    "optim.decay=3",
                               "--link",   link};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

const json& row_of(const json& all, const std::string& technique) {
  for (const json& one : all["techniques"])
    if (one["technique"] == technique) return one;
  throw std::runtime_error("no row of " + technique);
}

TEST(CompareSync, SendsWhatTheTechniquesAreDerivedToSend) {
  const Outcome o = run_program(compare_techniques({"--sync", "compress=int8;kind=partial,every=4", "--sync",
                                                    "kind=partial,every=6,outer=nesterov", "--steps", "6", "--json"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const json all = json::parse(o.out);
  ASSERT_EQ(all["techniques"].size(), 4);
  const json &full = all["techniques"][0], &int8 = row_of(all, "compress=int8"),
             &local = row_of(all, "kind=partial,every=4"), &diloco = row_of(all, "kind=partial,every=6,outer=nesterov");
  EXPECT_EQ(full["technique"], "full");
  const double bytes = full["sent_bytes_per_step"];  // 2(N-1)/N of 4 bytes per element
  EXPECT_NEAR(int8["sent_bytes_per_step"], bytes * 65 / 256, 0.03 * bytes);
  EXPECT_NEAR(local["sent_bytes_per_step"], bytes / 4, 0.01 * bytes);
  EXPECT_NEAR(diloco["sent_bytes_per_step"], bytes / 6, 0.01 * bytes);
  for (const json& one : all["techniques"]) {
    EXPECT_TRUE(one["as_planned"]) << one["technique"];
    EXPECT_EQ(one["equal_results"], one["technique"] == "full");
    EXPECT_TRUE(one["loss"].is_null());
    // A link is never faster than it says, and is predicted not to be. Messages of a step cannot be hidden behind less
    // computing than there is.
    const double link = static_cast<double>(one["sent_bytes_per_step"]) / 5e6;
    EXPECT_GE(one["step_seconds"], link) << one["technique"];
    EXPECT_GE(one["predicted"]["step_seconds"], link) << one["technique"];
    EXPECT_NEAR(static_cast<double>(one["of_full"]) * static_cast<double>(one["step_seconds"]),
                static_cast<double>(full["step_seconds"]), 1e-9);
  }
  EXPECT_EQ(local["predicted"]["local_steps"]["every"], 4);
  const json& steps = diloco["predicted"]["local_steps"];
  EXPECT_NEAR(
      (5 * static_cast<double>(steps["local_seconds"]) + static_cast<double>(steps["synchronizing_seconds"])) / 6,
      static_cast<double>(diloco["predicted"]["step_seconds"]), 1e-9);
  EXPECT_GT(steps["synchronizing_seconds"], static_cast<double>(steps["local_seconds"]) + bytes / 5e6);
}

// Losses are after as many tokens as asked for, or the next number at which all replicas agree: those of `train`.
TEST(CompareSync, LearnsWhatTrainingDoes) {
  const Outcome o =
      run_program(compare_techniques({"--sync", "kind=partial,every=8", "--steps", "1", "--tokens", "1500", "--json"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const json all = json::parse(o.out);
  EXPECT_EQ(all["tokens"], 24 * 64) << "1,500 tokens are 23.4 steps";
  for (const auto& [technique, kind] : {std::pair{"full", "full"}, {"kind=partial,every=8", "partial"}}) {
    const TemporaryFolder folder;
    std::vector<std::string> train =
        compare_techniques({"--set", "train.steps=24", "--set", "train.eval_every=24", "--set", "train.save_last=false",
                            "--set", std::string("sync.kind=") + kind, "--out", folder / "run"});
    train[0] = "train";
    train.erase(std::ranges::find(train, "--link"), std::ranges::find(train, "--link") + 2);
    if (std::string(kind) == "partial") train.insert(train.end(), {"--set", "sync.every=8"});
    const Outcome trained = run_program(train);
    ASSERT_EQ(trained.code, 0) << trained.err;
    std::ifstream records(folder / "run/metrics.jsonl");
    double loss = NAN;
    for (std::string line; std::getline(records, line);)
      if (const json record = json::parse(line); record.contains("eval_loss")) loss = record["eval_loss"];
    EXPECT_DOUBLE_EQ(row_of(all, technique)["loss"], loss) << technique;
  }
}

TEST(CompareSync, SaysThatOnlyFullIsInsideTheClaim) {
  const Outcome o =
      run_program(compare_techniques({"--sync", "compress=topk:0.01", "--steps", "2", "--tokens", "640"}, "1GB/s,0s"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("Only full is inside the claim of equal results"));
  EXPECT_THAT(o.out, HasSubstr("\n  compress=topk:0.01 "));
  EXPECT_THAT(o.out, HasSubstr("after 640 tokens, without the link"));
}

}  // namespace
}  // namespace lockstep::tests
