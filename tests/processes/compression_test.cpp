// Compressed gradients of processes are those of threads: losses, and the bytes of checkpoints with their residuals; so
// are compressed activations, and the embedding's gradient by rows.
#include <fmt/format.h>
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
  std::vector<std::vector<std::string>> all;
  for (const char* form : {"topk:0.05", "int8", "onebit"})
    for (const char* zero : {"0", "1"})
      all.push_back({"layout.dp=3", std::string("layout.zero=") + zero, std::string("sync.compress=") + form});
  for (const char* form : {"topk:0.05", "int8"})
    all.push_back({"layout.pp=3", std::string("sync.compress_activations=") + form});
  all.push_back({"layout.dp=3", "layout.embedding_gradient=rows", "train.global_batch=3", "layout.micro=1"});
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto train = [&](const std::string& out, const std::vector<std::string>& launcher) {
      std::vector<std::string> command{"train", folder / "tiny.toml", "--out", folder / out};
      for (const std::string& set : all[i]) command.insert(command.end(), {"--set", set});
      const Outcome o = Program(command, "/", launcher).wait();
      EXPECT_EQ(o.code, 0) << o.err;
      return results_in(folder / out);
    };
    const RunResults threads = train(fmt::format("threads{}", i), {}),
                     processes = train(fmt::format("processes{}", i), mpirun);
    EXPECT_FALSE(threads.losses.empty());
    EXPECT_EQ(threads.losses, processes.losses) << all[i].back();
    EXPECT_TRUE(threads.files == processes.files) << all[i].back() << ": checkpoints";
  }
}

}  // namespace
}  // namespace lockstep::tests
