// A run of a million steps is read whole, and what is not new costs nothing.
#include "telemetry/run_reader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "support/program.h"
#include "telemetry/step_record.h"

namespace lockstep::tests {
namespace {

TEST(RunFolderReadSlow, AMillionStepsAreReadOnce) {
  const TemporaryFolder folder;
  StepRecord step{
      .step = 1, .loss = 2, .mfu = 0.25, .bytes = {{"parameter", 100}}, .peak_bytes = {}, .times = {TimesByUse{}}};
  step.times[0][TimeUse::compute] = 1;
  const std::string line = to_json_line(step).substr(std::string("{\"step\":1").size());
  {
    std::ofstream out(folder.path() / "metrics.jsonl");
    for (int i = 1; i <= 1'000'000; ++i) out << "{\"step\":" << i << line;
  }
  const auto begin = std::chrono::steady_clock::now();
  RunReader reader(folder.path());
  EXPECT_EQ(reader.update().steps.size(), 1'000'000u);
  EXPECT_EQ(reader.records().every, 1);
  EXPECT_EQ(reader.records().bad_lines, 0);
  EXPECT_EQ(reader.records().last.step, 1'000'000);
  EXPECT_LE(sizeof(StepPoint), 200u);
  const auto read = std::chrono::steady_clock::now();
  reader.update();
  EXPECT_LT((std::chrono::steady_clock::now() - read) * 20, read - begin);
}

}  // namespace
}  // namespace lockstep::tests
