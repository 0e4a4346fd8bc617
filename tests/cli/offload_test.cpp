// Training with optimizer state on a disk, as a user does: the same results, checkpoints that resume with either
// setting, and nothing left behind by a run that was killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "support/program.h"
#include "support/run_results.h"
#include "support/small_disk.h"

namespace lockstep::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class OffloadedRuns : public ::testing::Test {
 protected:
  OffloadedRuns() { std::ofstream(folder_ / "tiny.toml") << tiny_run(6, 5); }
  std::vector<std::string> train(const std::vector<std::string>& more, const std::string& out) const {
    std::vector<std::string> all{"train", folder_ / "tiny.toml", "--out", folder_ / out, "--set", "train.eval_every=2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  RunResults results(const std::vector<std::string>& more, const std::string& out) const {
    const Outcome o = run_program(train(more, out));
    EXPECT_EQ(o.code, 0) << o.out << o.err;
    return results_in(folder_ / out);
  }
  TemporaryFolder folder_;
};

const std::vector<std::string> kToDisk{"--set", "memory.offload_optimizer=disk", "--set", "memory.offload_window=1"};

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(OffloadedRuns, LearnAndSaveTheSameBytes) {
  const std::vector<std::string> bf16{"--set", "precision.compute=bf16"};
  const std::vector<std::vector<std::string>> runs{
      {}, {"--layout", "dp=2,zero=1"}, bf16, joined({"--layout", "tp=2"}, bf16)};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string name = std::to_string(i);
    const RunResults kept = results(runs[i], "kept" + name);
    const std::vector<std::string> moved = joined(runs[i], kToDisk);
    EXPECT_TRUE(results(moved, "disk" + name) == kept) << name;
    EXPECT_TRUE(results(joined(moved, {"--set", "memory.offload_share=0.5"}), "half" + name) == kept) << name;
    EXPECT_TRUE(results(joined(moved, {"--set", "train.async_save=true"}), "beside" + name) == kept) << name;
  }
}

TEST_F(OffloadedRuns, LearnTheSameWithActivationsOnTheDisk) {
  const std::vector<std::string> moved{"--set", "memory.offload_activations=disk"};
  const RunResults kept = results({}, "kept");
  EXPECT_TRUE(results(moved, "moved") == kept);
  EXPECT_TRUE(results(joined(moved, {"--set", "memory.recompute=full"}), "full") == kept);
  EXPECT_TRUE(results(joined(moved, kToDisk), "both") == kept);
  const Outcome o = run_program(joined({"plan", folder_ / "tiny.toml"}, moved));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("on the disk"), HasSubstr("per step from the device, and as much back")));
}

TEST_F(OffloadedRuns, ResumeFromEitherSettingWithTheOther) {
  const RunResults whole = results({"--set", "train.save_every=3"}, "whole");
  for (const bool first : {true, false}) {
    const std::string out = first ? "first" : "second";
    const std::vector<std::string> none{"--set", "memory.offload_optimizer=none"};
    results(joined(first ? kToDisk : none, {"--set", "train.save_every=3"}), out);
    fs::remove_all(folder_ / (out + "/checkpoints/step-00000006"));
    std::ofstream(folder_ / (out + "/checkpoints/latest")) << "step-00000003\n";
    const Outcome o = run_program(joined({"train", "--resume", folder_ / out}, first ? none : kToDisk));
    EXPECT_EQ(o.code, 0) << o.out << o.err;
    EXPECT_TRUE(results_in(folder_ / out) == whole) << out;
  }
}

TEST_F(OffloadedRuns, LeaveNothingWhenKilledAndContinue) {
  const RunResults whole = results({"--set", "train.steps=40", "--set", "train.save_every=10"}, "whole");
  fs::create_directories(folder_ / "fast");
  Program run(train(joined(kToDisk, {"--set", "train.steps=40", "--set", "train.save_every=10", "--set",
                                     "memory.offload_folder=" + (folder_ / "fast")}),
                    "killed"));
  run.wait_for_output("step 20: checkpoint saved");
  run.signal(SIGKILL);
  run.wait();
  EXPECT_TRUE(fs::is_empty(folder_ / "fast")) << "the file has no name";
  const Outcome o = run_program({"train", "--resume", folder_ / "killed"});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_TRUE(results_in(folder_ / "killed") == whole);
}

TEST_F(OffloadedRuns, AreRefusedWhereTheDiskIsTooSmall) {
  const SmallDisk small(folder_ / "small", "size=64k");
  if (!small) GTEST_SKIP() << "this user may not mount a small tmpfs";
  const Outcome o =
      run_program(train(joined(kToDisk, {"--set", "memory.offload_folder=" + (folder_ / "small")}), "run"));
  EXPECT_EQ(o.code, 3) << o.out << o.err;
  EXPECT_THAT(o.err,
              AllOf(HasSubstr("the state of 1 rank needs "), HasSubstr(" in " + (folder_ / "small")),
                    HasSubstr("64.0 KiB are free there; name a folder on a larger disk with memory.offload_folder")));
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(OffloadedRuns, ArePlannedWithTheBytesOfEachPlace) {
  const Outcome o = run_program(joined({"plan", folder_ / "tiny.toml"}, kToDisk));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("on the disk"), HasSubstr("per step to the device, and as much back")));
}

// In bf16 with fp32 gradients: of every element 12 bytes come and go, or 4 go to the host and 2 come back.
TEST_F(OffloadedRuns, ArePlannedForTheWayTheyAreUpdated) {
  const auto plan = [&](const std::string& update) {
    return run_program({"plan", folder_ / "tiny.toml", "--set", "run.device=cuda", "--set", "precision.compute=bf16",
                        "--set", "memory.offload_optimizer=host", "--set", "memory.offload_update=" + update})
        .out;
  };
  const std::string kAssumed = "; offload_update = \"auto\" is counted as \"device\"";
  EXPECT_THAT(plan("device"), AllOf(HasSubstr("and as much back"), Not(HasSubstr(kAssumed))));
  EXPECT_THAT(plan("auto"), HasSubstr("and as much back" + kAssumed));
  const std::string host = plan("host");
  EXPECT_THAT(host,
              AllOf(HasSubstr("per step to the device, and "), Not(HasSubstr("as much")), Not(HasSubstr(kAssumed))));
}

}  // namespace
}  // namespace lockstep::tests
