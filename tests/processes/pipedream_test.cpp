// Stages without a flush that are processes learn what stages that are threads do: losses, and the bytes of
// checkpoints.
#include <gtest/gtest.h>

#include <fstream>

#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

TEST(PipeDreamOverProcesses, LearnsAndSavesWhatThreadsDo) {
  const TemporaryFolder folder;
  std::ofstream(folder / "tiny.toml") << tiny_run(12, 5) << "[layout]\npp = 3\nmicro = 4\n";
  const std::vector<std::string> mpirun{
      LOCKSTEP_MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "3"};
  for (const std::string kind : {"pipedream", "pipedream-2bw"}) {
    const auto train = [&](const std::string& out, const std::vector<std::string>& launcher) {
      const Outcome o =
          Program({"train", folder / "tiny.toml", "--out", folder / out, "--set", "layout.schedule=" + kind}, "/",
                  launcher)
              .wait();
      EXPECT_EQ(o.code, 0) << o.err;
      EXPECT_NE((o.out + o.err).find("outside the claim of equal results"), std::string::npos) << o.err;
      return results_in(folder / out);
    };
    const RunResults threads = train("threads" + kind, {}), processes = train("processes" + kind, mpirun);
    EXPECT_FALSE(threads.losses.empty());
    EXPECT_EQ(threads.losses, processes.losses) << kind;
    EXPECT_TRUE(threads.files == processes.files) << kind << ": checkpoints";
  }
}

}  // namespace
}  // namespace lockstep::tests
