// A bit that flips in the memory of a rank is found, the rank is named, and the launched run ends as one that never had
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "checkpoint/find_checkpoint.h"
#include "support/devices.h"
#include "support/flipped_memory.h"
#include "support/program.h"
#include "support/run_results.h"
#include "telemetry/rank_now.h"

namespace lockstep::tests {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

class Corrupted : public ::testing::TestWithParam<const char*> {
 protected:
  Corrupted() { std::ofstream(folder_ / "tiny.toml") << tiny_run(6, 20); }

  // Half of the vocabulary is not in the data: its rows of the embedding stay as they began. Checkpoints are written
  // from the state itself, so that there is no second copy of it.
  Arguments arguments(const std::string& command, const std::string& out, const Arguments& more = {}) const {
    Arguments all{command, folder_ / "tiny.toml", "--out", folder_ / out, "--layout", GetParam()};
    for (const char* setting :
         {"model.vocabulary=128", "optim.weight_decay=0", "train.steps=4000", "train.save_every=100",
          "train.eval_every=0", "train.async_save=false", "optim.schedule=constant", "run.check_state=5"})
      all.insert(all.end(), {"--set", setting});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // Rows that no token of the data asks for, when the run has saved them.
  std::vector<std::byte> wait_for_rows(const std::string& out) const {
    constexpr std::int64_t kRows = 128, kWidth = 32, kBytes = 512;
    for (int i = 0; i < 1200; ++i, std::this_thread::sleep_for(50ms)) {
      try {
        const auto saved = find_checkpoint(folder_ / out);
        if (!saved || saved->progress().step < 20) continue;
        CpuDevice cpu;
        std::vector<float> values(kRows * kWidth);
        const StateTensor rows{.part = kWeightPart,
                               .tensor = {"model.embed_tokens.weight", {kRows, kWidth}},
                               .range = {0, kRows * kWidth, kRows * kWidth, 1},
                               .live = Tensor(values.data(), DType::f32, Device::cpu, {kRows * kWidth})};
        saved->load({&rows, 1}, cpu.stream());
        const auto* first = reinterpret_cast<const std::byte*>(values.data() + 100 * kWidth);
        return {first, first + kBytes};
      } catch (const std::exception&) {  // removed while it was read
      }
    }
    return {};
  }

  TemporaryFolder folder_;
};

TEST_P(Corrupted, IsFoundNamedAndForgotten) {
  ASSERT_EQ(run_program(arguments("train", "unbroken")).code, 0);
  Outcome outcome;
  int flipped = 0;
  {
    Program launch(arguments("launch", "broken", {"--processes"}));
    const std::vector<std::byte> rows = wait_for_rows("broken");
    ASSERT_FALSE(rows.empty()) << "nothing was saved";
    std::optional<RankNow> rank;
    for (int i = 0; i < 100 && !rank; ++i, std::this_thread::sleep_for(50ms))
      rank = read_rank_now(folder_ / "broken/ranks/rank-00001.now");
    ASSERT_TRUE(rank);
    flipped = flip_in_process(static_cast<pid_t>(rank->pid), rows);
    outcome = launch.wait();
  }
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  if (flipped < 0) GTEST_SKIP() << "SKIPPED: the memory of another process may not be written here";
  EXPECT_GE(flipped, 1);
  EXPECT_THAT(outcome.err, HasSubstr("restart 1 of at most 10"));
  const std::string events = text_of(folder_ / "broken/events.jsonl");
  EXPECT_THAT(events, AllOf(HasSubstr("rank 1 (host "), HasSubstr("tensor group embedding: weights")));
  EXPECT_THAT(events, Not(AnyOf(HasSubstr("rank 0 (host "), HasSubstr("rank 2 (host "))));
  EXPECT_EQ(results_in(folder_ / "broken"), results_in(folder_ / "unbroken"));
}

INSTANTIATE_TEST_SUITE_P(Layouts, Corrupted, ::testing::Values("dp=3"), [](const auto& info) {
  std::string name = info.param;
  std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
  return name;
});

}  // namespace
}  // namespace lockstep::tests
