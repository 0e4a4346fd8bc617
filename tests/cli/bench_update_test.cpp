// lockstep bench update: AdamW on the host in every type of state, beside its memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/program.h"

namespace lockstep::tests {
namespace {

TEST(BenchUpdate, HasARateAndACeilingOfEachType) {
  const Outcome o = run_program({"bench", "update", "--size", "1", "--rounds", "1", "--threads", "1", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const nlohmann::json found = nlohmann::json::parse(o.out);
  EXPECT_EQ(found["threads"], 1);
  ASSERT_EQ(found["rows"].size(), 5U);
  std::vector<int> bytes;
  for (const auto& row : found["rows"]) {
    bytes.push_back(row["bytes_per_element"].get<int>());
    EXPECT_GT(row["value"].get<double>(), 0);
    EXPECT_GE(row["ceiling"].get<double>(), 0);
    EXPECT_NEAR(row["ratio"].get<double>(), row["value"].get<double>() / row["ceiling"].get<double>(), 1e-9);
  }
  EXPECT_THAT(bytes, ::testing::ElementsAre(28, 30, 28, 20, 14));
}

TEST(BenchUpdate, SaysWhatItMeasured) {
  const Outcome o = run_program({"bench", "update", "--size", "1", "--rounds", "1"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, ::testing::HasSubstr("fp32 masters, bf16 moments, bf16 gradient, bf16 copy"));
  EXPECT_THAT(o.out, ::testing::HasSubstr("memory: "));
}

}  // namespace
}  // namespace lockstep::tests
