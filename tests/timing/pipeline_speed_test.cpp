// Pipelines on real clocks: what is measured is near what is predicted from how long steps take, and on a slow link
// what is sent earlier pays.
#include <gtest/gtest.h>

#include "comm/delayed.h"
#include "comm/threads/run_ranks.h"
#include "plan/measured_timeline.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/timed_ranks.h"
#include "train/run_trace.h"

namespace lockstep::tests {
namespace {

constexpr double kPointsApart = 5;

// Two stages, a thread each.
Replica::Options two_stages(ScheduleKind kind, int micro) {
  LayoutSpec layout{.pp = 2, .schedule = kind, .micro = micro};
  Replica::Options options = heavy_blocks(layout);
  options.B = micro;
  options.T = 64;
  return options;
}

// Points between the bubble of the middle one of three watched steps and what their own times make the best of.
double points_apart(ScheduleKind kind, int micro) {
  const Replica::Options o = two_stages(kind, micro);
  std::optional<Trace> trace;
  run_ranks(2, [&](std::unique_ptr<Communicator> ranks) {
    CpuDevice cpu;
    Replica replica(o, {*ranks, *ranks}, cpu.memory(), cpu.stream());
    replica.init_weights();
    RunTrace timeline(replica, {.steps = 3, .layout = o.layout, .ranks = ranks.get()});
    const TokenBatch batch = random_batch(o, 1);
    for (std::int64_t step = 0; step < 4; ++step) {
      timeline.before(step, step == 0);
      replica.step(batch.tokens, batch.targets);
    }
    if (auto collected = timeline.collect()) trace = std::move(collected);
    replica.settle();
  });
  const MeasuredTimeline measured = measured_timeline(*trace, 3, "a test");
  return 100 * (measured.bubble() - ideal_timeline(measured, 0).bubble());
}

TEST(PipelineSpeed, TheBubbleIsNearThePrediction) {
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zb_h1}) {
    std::vector<double> apart;
    EXPECT_TRUE(median_is_good([&] { return points_apart(kind, 8); },
                               [](double one) { return std::abs(one) <= kPointsApart; }, apart));
    fmt::print("{}: points apart {}(at most {})\n", name_of(kind), sorted_text(apart), kPointsApart);
  }
}

TEST(PipelineSpeed, ZeroBubbleIsFasterOnASlowLink) {
  const auto trial = [] {
    // A message takes about a fifth of a step of a chunk.
    const double alone = times_of_steps(two_stages(ScheduleKind::one_f_one_b, 4), 1e15).step;
    const Replica::Options fused = two_stages(ScheduleKind::one_f_one_b, 4),
                           halves = two_stages(ScheduleKind::zb_h1, 4);
    const double rate = static_cast<double>(fused.T * fused.spec.width * 4) / (alone / 4 / 3 / 5);
    return times_of_steps(halves, rate).step / times_of_steps(fused, rate).step;
  };
  std::vector<double> ratios;
  EXPECT_TRUE(median_is_good(
      trial, [](double one) { return one < 1; }, ratios));
  fmt::print("zb-h1 over 1f1b: {}(below 1)\n", sorted_text(ratios));
}

}  // namespace
}  // namespace lockstep::tests
