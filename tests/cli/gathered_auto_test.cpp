// memory.gathered = "auto" as a user meets it: the resolved run file has the number that the program chose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "spec/run/run_toml.h"
#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

TEST(GatheredAuto, IsANumberInTheRunFolderAndTheSameBits) {
  const TemporaryFolder folder;
  std::ofstream(folder / "tiny.toml") << tiny_run(6, 5);
  const auto train = [&](const std::string& out, const std::string& gathered) {
    const Outcome o = run_program({"train", folder / "tiny.toml", "--layout", "dp=3,zero=3", "--set",
                                   "memory.gathered=" + gathered, "--out", folder / out});
    EXPECT_EQ(o.code, 0) << o.err;
    return results_in(folder / out);
  };
  const RunResults none = train("none", "0");
  EXPECT_TRUE(train("chosen", "auto") == none);
  const std::string resolved = text_of(std::filesystem::path(folder / "chosen") / "run.toml");
  const RunSpec spec = parse_run_toml(resolved, "run.toml", ".");
  EXPECT_GT(spec.memory.gathered, 0) << "a tiny model fits whole";
  // It resumes without choosing again, and any command reads it.
  const Outcome more = run_program({"train", "--resume", folder / "chosen", "--set", "train.steps=7"});
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_THAT(more.out, ::testing::Not(HasSubstr("memory.gathered changes")));
}

TEST(GatheredAuto, IsWhatPlanSays) {
  const TemporaryFolder folder;
  std::ofstream(folder / "tiny.toml") << tiny_run(6, 5);
  const auto plan = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", folder / "tiny.toml", "--layout", "dp=3,zero=3"});
    return run_program(more);
  };
  const Outcome chosen = plan({"--set", "memory.gathered=auto"});
  EXPECT_EQ(chosen.code, 0) << chosen.err;
  EXPECT_THAT(chosen.out, HasSubstr("gathered     auto: "));
  EXPECT_THAT(plan({}).out, ::testing::Not(HasSubstr("auto")));
  // A size in place of what is free.
  const Outcome fits = plan({"--set", "memory.gathered=auto", "--fit", "64MiB"});
  EXPECT_EQ(fits.code, 0) << fits.err;
  EXPECT_THAT(fits.out, HasSubstr("it fits"));
}

}  // namespace
}  // namespace lockstep::tests
