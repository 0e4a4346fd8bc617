// Pipelines as a user meets them: trained, traced, drawn, written by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

class PipelineCommand : public ::testing::Test {
 protected:
  PipelineCommand() { std::ofstream(folder_ / "tiny.toml") << tiny_run(8, 5); }
  Outcome train(const std::string& out, const std::string& layout, std::vector<std::string> more = {}) const {
    std::vector<std::string> all{"train", folder_ / "tiny.toml", "--out", folder_ / out, "--layout", layout};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  }
  TemporaryFolder folder_;
};

TEST_F(PipelineCommand, LearnsTheLossesOfOneRankAndDrawsWhatItDid) {
  ASSERT_EQ(train("one", "micro=4").code, 0);
  const Outcome o = train("two", "pp=2,micro=4", {"--set", "run.trace=2"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("the timeline of 2 steps is in "));
  EXPECT_THAT(o.out, HasSubstr("equal to the byte"));
  EXPECT_EQ(losses_in(folder_ / "two"), losses_in(folder_ / "one"));
  const Outcome drawn = run_program({"schedule", "--from-trace", folder_ / "two/trace.json"});
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_THAT(drawn.out, HasSubstr("step 3 of pp=2,micro=4: 2 stages, 4 micro-batches"));
  EXPECT_THAT(drawn.out, HasSubstr("% measured"));
}

TEST_F(PipelineCommand, RunsAScheduleThatSomebodyWrote) {
  ASSERT_EQ(train("named", "pp=2,micro=4,schedule=zb-h1").code, 0);
  // Neither of those that have a name.
  std::ofstream(folder_ / "mine.txt") << "F0 F1 F2 I0 F3 W0 I1 I2 W1 B3\n";
  const Outcome wrong = train("wrong", "pp=2,micro=4,schedule_file=" + (folder_ / "mine.txt"));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(std::ranges::count(wrong.err, '\n'), 1) << wrong.err;
  std::ofstream(folder_ / "mine.txt")
      << "F0 F1 I0 F2 W0 I1 F3 I2 W1 W2 B3  # the first stage\nF0 B0 F1 I1 F2 I2 W1 F3 W2 B3\n";
  const Outcome o = train("mine", "pp=2,micro=4,schedule_file=" + (folder_ / "mine.txt"));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(losses_in(folder_ / "mine"), losses_in(folder_ / "named"));
  const Outcome other = train("other", "pp=2,micro=2,schedule_file=" + (folder_ / "mine.txt"));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("use pp = 2, micro = 4, chunks = 1"));
}

TEST_F(PipelineCommand, PlansEveryStage) {
  const Outcome o = run_program({"plan", folder_ / "tiny.toml", "--layout", "pp=3,micro=4"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("stages of the pipeline"));
  EXPECT_THAT(o.out, HasSubstr("which needs most"));
  EXPECT_THAT(o.out, HasSubstr("pp send"));
  const Outcome picture = run_program({"plan", folder_ / "tiny.toml", "--layout", "pp=3,micro=4", "--picture"});
  EXPECT_EQ(picture.code, 0);
  EXPECT_THAT(picture.out, HasSubstr("rank 2\n"));
}

}  // namespace
}  // namespace lockstep::tests
