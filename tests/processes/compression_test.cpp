// Compressed gradients of processes are those of threads: losses, and the bytes of checkpoints with their residuals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/program.h"
#include "support/run_results.h"

namespace lockstep::tests {
namespace {

TEST(CompressionOverProcesses, LearnsAndSavesWhatThreadsDo) {
  const TemporaryFolder folder;
  std::ofstream(folder / "tiny.toml") << tiny_run(12, 5) << "[layout]\nmicro = 2\n";
  const std::vector<std::string> mpirun{
      LOCKSTEP_MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "3"};
  for (const char* form : {"topk:0.05", "int8", "onebit"})
    for (const char* zero : {"0", "1"}) {
      const auto train = [&](const std::string& out, const std::vector<std::string>& launcher) {
        const Outcome o =
            Program({"train", folder / "tiny.toml", "--out", folder / out, "--set", "layout.dp=3", "--set",
                     std::string("layout.zero=") + zero, "--set", std::string("sync.compress=") + form},
                    "/", launcher)
                .wait();
        EXPECT_EQ(o.code, 0) << o.err;
        return results_in(folder / out);
      };
      const std::string name = std::string(form) + zero;
      const RunResults threads = train("threads" + name, {}), processes = train("processes" + name, mpirun);
      EXPECT_FALSE(threads.losses.empty());
      EXPECT_EQ(threads.losses, processes.losses) << name;
      EXPECT_TRUE(threads.files == processes.files) << name << ": checkpoints";
    }
}

}  // namespace
}  // namespace lockstep::tests
