// Asynchronous parameter servers under mpirun: what threads have recorded, processes repeat to the bit, and the other
// way round.
#include <gtest/gtest.h>

#include <fstream>

#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/arrivals.h"

namespace lockstep::tests {
namespace {

TEST(AsyncProcesses, RepeatWhatThreadsHaveRecordedAndTheOtherWayRound) {
  const TemporaryFolder folder;
  std::ofstream(folder / "tiny.toml") << tiny_run(12, 20);
  const auto train = [&](const std::string& out, const std::string& replay, const std::vector<std::string>& launcher) {
    std::vector<std::string> all{
        "train", folder / "tiny.toml", "--out", folder / out,      "--layout", "dp=3,dp_kind=server,servers=2",
        "--set", "sync.kind=async",    "--set", "sync.staleness=4"};
    if (!replay.empty()) all.insert(all.end(), {"--set", "sync.replay=" + (folder / (replay + "/arrivals.jsonl"))});
    const Outcome outcome = Program(all, "/", launcher).wait();
    EXPECT_EQ(outcome.code, 0) << out << ": " << outcome.out << outcome.err;
    return results_in(folder / out);
  };
  const std::vector<std::string> mpirun{
      LOCKSTEP_MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "5"};
  const RunResults threads = train("threads", "", {}), processes = train("processes", "", mpirun);
  const auto arrivals_of = [&](const std::string& out) { return read_arrivals(folder / (out + "/arrivals.jsonl")); };
  EXPECT_EQ(arrivals_of("threads").size(), 18u);
  EXPECT_LE(staleness_of(arrivals_of("processes")).most, 4);
  EXPECT_TRUE(train("again", "threads", mpirun) == threads);
  EXPECT_EQ(arrivals_of("again"), arrivals_of("threads"));
  EXPECT_TRUE(train("back", "processes", {}) == processes);
}

}  // namespace
}  // namespace lockstep::tests
