// Training reaches what theory says can be reached: the entropy of a language that is known.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/synthetic_language.h"
#include "support/program.h"

namespace lockstep::tests {
namespace {

// Order 2: the next token depends on two before it, so attention has to find the one further back.
TEST(Synthetic, LearnsALanguageToWithinTwoPercentOfItsEntropy) {
  const TemporaryFolder folder;
  const std::string file = std::string(LOCKSTEP_SOURCE_DIR) + "/configs/runs/synthetic.toml";
  const Outcome o = run_program({"train", file, "--out", folder / "run"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::ifstream in(folder / "run/metrics.jsonl");
  double last = 1e9;
  for (std::string line; std::getline(in, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains("eval_loss")) last = record["eval_loss"];
  }
  const auto at = o.out.find("no model can do better than a loss of ");
  ASSERT_NE(at, std::string::npos);
  const double floor = std::stod(o.out.substr(at + 38));
  EXPECT_GE(last, floor * 0.99);  // the floor is one: only sampling noise can go below it
  EXPECT_LE(last, floor * 1.02);
}

}  // namespace
}  // namespace lockstep::tests
