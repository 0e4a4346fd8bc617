// Several ranks as a user meets them: one more option, the same losses, a folder that any number of ranks goes on with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

const char* const kRunOfEightSteps = R"(
[model]
family = "llama"
vocabulary = 16
layers = 2
width = 16
heads = 2
ffn_width = 24
max_positions = 32
dropout = 0.1
[data]
seq = 16
[data.synthetic]
vocabulary = 16
order = 1
[train]
steps = 8
global_batch = 12
eval_every = 4
[optim]
warmup = 0
[precision]
compute = "fp64"
)";

class Ranks : public ::testing::Test {
 protected:
  Ranks() { std::ofstream(folder_ / "tiny.toml") << kRunOfEightSteps; }
  Outcome train(const std::string& out, std::vector<std::string> more) const {
    std::vector<std::string> all{"train", folder_ / "tiny.toml", "--out", folder_ / out};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  }
  std::vector<double> losses(const std::string& out) const { return losses_in(folder_ / out); }
  TemporaryFolder folder_;
};

TEST_F(Ranks, LearnWhatOneLearnsAndGoOnInAnyNumber) {
  ASSERT_EQ(train("one", {}).code, 0);
  const std::vector<double> one = losses("one");
  ASSERT_GE(one.size(), 8u);
  const Outcome whole = train("all", {"--ranks", "4"});
  ASSERT_EQ(whole.code, 0) << whole.err;
  const std::vector<double> four = losses("all");
  ASSERT_EQ(four.size(), one.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(four[i], one[i], 1e-11 * one[i]) << i;

  const Outcome cut = train("cut", {"--layout", "dp=2,tp=2,zero=1"});
  ASSERT_EQ(cut.code, 0) << cut.err;
  ASSERT_EQ(losses("cut").size(), one.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(losses("cut")[i], one[i], 1e-11 * one[i]) << i;

  // Five steps on three ranks, the rest on two.
  ASSERT_EQ(train("moved", {"--ranks", "3", "--set", "optim.schedule=constant", "--set", "train.steps=5"}).code, 0);
  ASSERT_EQ(train("unbroken", {"--set", "optim.schedule=constant"}).code, 0);
  const Outcome rest = train("moved", {"--ranks", "2", "--set", "optim.schedule=constant", "--resume"});
  ASSERT_EQ(rest.code, 0) << rest.err;
  const std::vector<double> moved = losses("moved"), unbroken = losses("unbroken");
  EXPECT_NEAR(moved.back(), unbroken.back(), 1e-10 * unbroken.back());
}

TEST_F(Ranks, ThatDoNotDivideTheBatchAreRefusedWithSizesThatDo) {
  const Outcome refused = train("five", {"--ranks", "5"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("global_batch (12) is not a multiple of dp (5)"));
  EXPECT_THAT(refused.err, HasSubstr("10 or 15"));
}

TEST_F(Ranks, StopTogether) {
  Program running({"train", folder_ / "tiny.toml", "--out", folder_ / "stopped", "--ranks", "3", "--set",
                   "train.steps=1000000", "--set", "train.eval_every=0"});
  running.wait_for_output("step");
  running.signal(SIGINT);
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("as asked"));
}

}  // namespace
}  // namespace lockstep::tests
