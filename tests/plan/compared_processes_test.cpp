// Ranks that are processes measure what ranks that are threads do, all of them have the same figures, and they stop
// together. Here the processes are threads, each with its own data and its own comparison.
#include <gtest/gtest.h>

#include <atomic>

#include "comm/threads/run_ranks.h"
#include "plan/compared_round.h"
#include "plan/comparison.h"
#include "support/mesh_matrix.h"

namespace lockstep::tests {
namespace {

// By rank.
std::vector<Comparison> compare_as_processes(const RunSpec& run, const std::vector<LayoutSpec>& layouts,
                                             const ComparisonOptions& options) {
  std::vector<Comparison> all(static_cast<std::size_t>(layouts.front().ranks()));
  run_ranks(static_cast<int>(all.size()), [&](std::unique_ptr<Communicator> ranks) {
    const RunData data(run);
    const ComparedProcess process{.ranks = *ranks, .data = data, .threads = 1, .ranks_here = ranks->size()};
    ComparisonOptions mine = options;
    mine.process = &process;
    if (ranks->rank() > 0) mine.wants_stop = {};
    all[static_cast<std::size_t>(ranks->rank())] = compare_costs(run, layouts, mine);
  });
  return all;
}

TEST(ComparedProcesses, HaveTheCostsOfThreadsAndOfThePlan) {
  int pipelines = 0;
  for (const MeshCase& one : mesh_sample(16, 20)) {
    if (one.layout.ranks() == 1 || one.layout.ranks() > 8) continue;
    SCOPED_TRACE(one.words());
    RunSpec run = one.run(Precision::fp32);
    run.run.threads = 1;
    const ComparedLayout threads = compare_costs(run, {one.layout}, {.steps = 1}).layouts.at(0);
    const std::vector<Comparison> all = compare_as_processes(run, {one.layout}, {.steps = 1});
    for (const Comparison& seen : all) {
      const ComparedLayout& by = seen.layouts.at(0);
      EXPECT_TRUE(by.ok());
      EXPECT_EQ(by.loss, threads.loss);
      EXPECT_EQ(by.bubble.has_value(), one.layout.pp > 1);
      EXPECT_EQ(by.bubble, all[0].layouts[0].bubble);
      ASSERT_EQ(by.ranks.size(), threads.ranks.size());
      for (std::size_t r = 0; r < by.ranks.size(); ++r) {
        EXPECT_TRUE(by.ranks[r].messages == threads.ranks[r].messages) << r;
        EXPECT_EQ(by.ranks[r].rows, threads.ranks[r].rows) << r;
        EXPECT_EQ(by.ranks[r].peak, threads.ranks[r].peak) << r;
        EXPECT_EQ(by.ranks[r].step_seconds, all[0].layouts[0].ranks[r].step_seconds) << r;
        EXPECT_GT(by.ranks[r].step_seconds, 0) << r;
      }
    }
    pipelines += one.layout.pp > 1;
  }
  EXPECT_GE(pipelines, 3);
}

// What rank 0 wishes before the third step keeps all of them from the fourth.
TEST(ComparedProcesses, StopTogether) {
  const MeshCase one = mesh_sample(1, 3)[0];
  RunSpec run = one.run(Precision::fp32);
  run.layout = {.dp = 2};
  run.train.global_batch = 2;
  std::atomic<int> asked = 0;
  const std::vector<Comparison> all =
      compare_as_processes(run, {run.layout}, {.steps = 500, .rounds = 1, .wants_stop = [&] { return ++asked >= 3; }});
  EXPECT_EQ(asked, 3);
  for (const Comparison& seen : all) {
    EXPECT_TRUE(seen.stopped);
    EXPECT_TRUE(seen.layouts.empty());
  }
}

TEST(ComparedProcesses, AreLeftOutWhereOneOfThemDoesNotFit) {
  RunSpec run = mesh_sample(1, 3)[0].run(Precision::fp32);
  run.layout = {.dp = 2};
  run.train.global_batch = 2;
  run.data.seq = run.model.max_positions = std::int64_t{1} << 25;
  for (const Comparison& seen : compare_as_processes(run, {run.layout}, {.steps = 1})) {
    EXPECT_TRUE(seen.layouts.empty());
    ASSERT_EQ(seen.left_out.size(), 1u);
    EXPECT_EQ(seen.left_out[0].why.find("rank 0 needs "), 0u) << seen.left_out[0].why;
  }
}

TEST(ComparedRound, ComesBackFromItsTextBitForBit) {
  ComparedRound round{.rank = {}, .step = {0.1, 1.0 / 3}, .exposed = {1e-300, 0}, .loss = 5.5406467840123};
  round.rank.peaks = {1, 2, 3, 4, 5, 6, 7, std::int64_t{1} << 60};
  round.rank.peak = 29;
  round.rank.rows[{Tag::gradient, "block.1 \"quoted\""}] = {5, 6};
  round.rank.messages.tensors = {
      {.op = CommOp::all_gather, .dtype = DType::bf16, .of = {1, 2, 3, 4}, .axis = MeshAxis::cp}};
  round.rank.messages.numbers = {9, 8, 7, 6};
  round.spans = {{{.action = 3, .begin = 0.1, .end = 0.2}}, {}};
  const ComparedRound again = compared_round(to_text(round));
  EXPECT_EQ(again.step, round.step);
  EXPECT_EQ(again.exposed, round.exposed);
  EXPECT_EQ(again.loss, round.loss);
  EXPECT_EQ(again.rank.peaks, round.rank.peaks);
  EXPECT_EQ(again.rank.peak, round.rank.peak);
  EXPECT_EQ(again.rank.rows, round.rank.rows);
  EXPECT_TRUE(again.rank.messages == round.rank.messages);
  ASSERT_EQ(again.spans.size(), 2u);
  EXPECT_EQ(again.spans[0].at(0).action, 3u);
  EXPECT_EQ(again.spans[0][0].begin, 0.1);
  EXPECT_EQ(again.spans[0][0].end, 0.2);
  EXPECT_TRUE(again.spans[1].empty());
}

}  // namespace
}  // namespace lockstep::tests
