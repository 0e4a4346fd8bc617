// Ranks that are processes start from another run's checkpoint as threads do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

using ::testing::HasSubstr;

TEST(ProcessesStart, FromTheCheckpointThatRankZeroFoundAndLearnTheBitsOfThreads) {
  const TemporaryFolder folder;
  std::ofstream(folder / "tiny.toml") << tiny_run(12, 5);
  const auto train = [&](const std::string& out, const std::vector<std::string>& launcher = {}) {
    std::vector<std::string> all{"train",    folder / "tiny.toml", "--out", folder / out,
                                 "--layout", "dp=2,zero=3",        "--set", "train.save_every=3"};
    if (out != "first")
      for (const std::string& set : {"model.from=" + (folder / "first"), std::string("data.synthetic.seed=8")})
        all.insert(all.end(), {"--set", set});
    const Outcome o = Program(all, "/", launcher).wait();
    EXPECT_EQ(o.code, 0) << o.err;
    return o.out;
  };
  train("first");
  // The newest is damaged: everybody takes the one before.
  std::string newest, older;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "first/checkpoints")) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("step-")) continue;
    if (name > newest)
      std::swap(newest, older), newest = name;
    else if (name > older)
      older = name;
  }
  ASSERT_FALSE(older.empty());
  std::ofstream(folder / ("first/checkpoints/" + newest + "/state-00000-of-00002.safetensors"), std::ios::app) << "x";
  train("threads");
  const std::string out =
      train("processes", {LOCKSTEP_MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"});
  EXPECT_THAT(out, HasSubstr("starting from the weights of " + (folder / ("first/checkpoints/" + older))));
  EXPECT_THAT(out, HasSubstr("skipping " + (folder / ("first/checkpoints/" + newest))));
  const RunResults threads = results_in(folder / "threads"), processes = results_in(folder / "processes");
  EXPECT_EQ(processes.losses, threads.losses);
  EXPECT_NE(threads.losses, losses_in(folder / "first"));
  EXPECT_TRUE(processes.files == threads.files);
}

}  // namespace
}  // namespace lockstep::tests
