// A run that compresses messages, as a user has it: what it says, what refuses it, and that it resumes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/program.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

const std::string kSynthetic = std::string(LOCKSTEP_SOURCE_DIR) + "/configs/runs/synthetic.toml";

TEST(CompressedTraining, SaysThatItIsOutsideTheClaimAndResumesElsewhere) {
  const TemporaryFolder folder;
  const std::vector<std::string> run{"train", kSynthetic,       "--out", folder / "run", "--set", "train.eval_every=0",
                                     "--set", "model.layers=1", "--set", "data.seq=16",  "--set", "optim.decay=3"};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> all = run;
    all.insert(all.end(), more);
    return run_program(all);
  };
  const Outcome first = with({"--layout", "dp=4", "--set", "sync.compress=topk:0.05", "--set", "train.steps=24"});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out + first.err, HasSubstr("outside the claim of equal results"));
  const Outcome next =
      with({"--layout", "dp=2,zero=1", "--set", "sync.compress=int8", "--set", "train.steps=26", "--resume"});
  EXPECT_EQ(next.code, 0) << next.err;
  EXPECT_THAT(next.err + next.out, HasSubstr("sync.compress changes from \"topk:0.05\" to \"int8\""));
}

TEST(CompressedTraining, IsRefusedWhereLayoutsAreComparedWithARemedyThatWorks) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"verify", kSynthetic, "--layout", "dp=2"},
                                                  {"choose", kSynthetic, "--machine", "h100-sxm"},
                                                  {"compare", kSynthetic, "--layout", "dp=2", "--brief"}}) {
    std::vector<std::string> compressed = command;
    compressed.insert(compressed.end(), {"--set", "sync.compress=int8"});
    const Outcome o = run_program(compressed);
    EXPECT_EQ(o.code, 2) << command[0] << ": " << o.err;
    EXPECT_THAT(o.err, HasSubstr("[sync] compresses messages")) << command[0];
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
  }
}

}  // namespace
}  // namespace lockstep::tests
