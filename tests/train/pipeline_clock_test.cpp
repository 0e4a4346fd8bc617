// Pipelines on a fake clock: the executor's own trace has the bubbles of the theory, and keeps what it says in flight.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "comm/threads/run_ranks.h"
#include "spec/pipeline/clock.h"
#include "spec/pipeline/stage_step.h"
#include "spec/step/world_faults.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/pipeline_layouts.h"
#include "support/tiny_specs.h"
#include "support/virtual_time.h"
#include "train/replica.h"

namespace lockstep::tests {
namespace {

// Every step of a chunk takes one unit of time, shared out to the phases that it is made of, and a rank's trace is
// written by its clock.
class FakeWatch final : public StepWatch {
 public:
  FakeWatch(const RankStep& step, FakeClock& clock, std::vector<ChunkSpan>& spans)
      : step_(step), clock_(clock), spans_(spans), positions_(positions_of(step.actions, step.schedule, step.shape)) {
    for (const int position : positions_)
      if (position >= 0) ++phases_[position];
  }
  void comes_to(std::size_t index) override { position_ = positions_[index]; }
  void runs(const Action&) override { begin_ = clock_.now(); }
  void is_done_with(const Action& action) override {
    if (!is_phase(action.kind)) return;
    const ChunkAction& step =
        step_.schedule.stages[static_cast<std::size_t>(step_.shape.stage)][static_cast<std::size_t>(position_)];
    // In whole parts, so that sums are exact: a step has few phases, of which 840 is a multiple.
    clock_.work((step.step == ChunkStep::backward ? 2 : 1) * 840 / phases_[position_]);
    if (spans_.empty() || spans_.back().action != step)
      spans_.push_back({step, begin_, clock_.now()});
    else
      EXPECT_EQ(spans_.back().end, begin_) << "a step of a chunk was held up in its middle";
    spans_.back().end = clock_.now();
  }

 private:
  const RankStep& step_;
  FakeClock& clock_;
  std::vector<ChunkSpan>& spans_;
  std::vector<int> positions_;
  std::map<int, int> phases_;
  int position_ = -1;
  double begin_ = 0;
};

PipelineTimeline trace_of(const LayoutSpec& layout, double message = 0) {
  ModelSpec spec = tiny_specs()[0].spec;
  const std::int64_t chunks = layout.pp * layout.chunks;
  spec.layers = 2 * chunks - (chunks == 1 ? 1 : 2);  // two units a chunk
  std::vector<std::int64_t> layers(static_cast<std::size_t>(chunks), 2);
  --layers.front();
  if (chunks > 1) --layers.back();
  LayoutSpec even = layout;
  even.stages = StageRule::of_layers(layers);
  const Replica::Options o{.spec = spec, .B = layout.micro, .T = 3, .layout = even, .seed = 5};
  PipelineTimeline line;
  line.stages.resize(static_cast<std::size_t>(layout.pp));
  run_ranks(static_cast<int>(layout.ranks()), [&](std::unique_ptr<Communicator> inner) {
    const auto rank = static_cast<std::size_t>(inner->rank());
    const auto hosts = inner->split([](int r) { return Place{0, r}; }, "hosts");
    FakeClock clock(message * 840);
    OnFakeClock ranks(std::move(inner), clock);
    CpuDevice cpu;
    Replica replica(o, {ranks, *hosts}, cpu.memory(), cpu.stream());
    replica.init_weights();
    FakeWatch watch(replica.rank_step(), clock, line.stages[rank]);
    replica.show(&watch);
    const TokenBatch batch = random_batch(o, 1);
    replica.step(batch.tokens, batch.targets);
    replica.settle();
  });
  return line;
}

TEST(PipelineOnAFakeClock, HasTheBubblesOfTheTheory) {
  for (const int p : {1, 2, 3, 4, 8})
    for (const int m : {1, 3, 8, 16}) {
      const auto bubble = [&](ScheduleKind kind, int chunks = 1) {
        return trace_of(pipeline_layout(kind, p, m, chunks)).bubble();
      };
      const auto is = [&](ScheduleKind kind, int chunks, double share) {
        EXPECT_NEAR(bubble(kind, chunks), share, 1e-12) << name_of(kind) << " pp=" << p << " micro=" << m;
      };
      is(ScheduleKind::afab, 1, (p - 1.0) / (m + p - 1));
      is(ScheduleKind::one_f_one_b, 1, (p - 1.0) / (m + p - 1));
      for (const int v : {2, 3})
        if (m % p == 0 && p < 8) is(ScheduleKind::interleaved, v, (p - 1.0) / (v * m + p - 1));
      if (m >= p) is(ScheduleKind::zb_h1, 1, (p - 1.0) / (3 * m + p - 1));
      if (m < 2 * p) continue;
      const PipelineTimeline line = trace_of(pipeline_layout(ScheduleKind::zb_v, p, m, 2));
      for (int s = 0; s < p; ++s) EXPECT_EQ(line.own_bubble(s), 0) << "zb-v pp=" << p << " micro=" << m;
    }
}

// With messages that take time too, and where nothing divides anything.
TEST(PipelineOnAFakeClock, RunsAsTheSimulatorSays) {
  for (const ScheduleKind kind : kScheduleKinds)
    for (const int p : {2, 3, 5})
      for (const int m : {1, 2, 4, 7})
        for (const double message : {0.0, 0.5}) {
          const LayoutSpec layout = pipeline_layout(kind, p, m);
          const PipelineTimeline real = trace_of(layout, message);
          const PipelineTimeline ideal = timed(schedule_of(layout), [&](int) {
            return ChunkTimes{840, 840, 840, 840 * message};
          });
          for (std::size_t s = 0; s < real.stages.size(); ++s) {
            ASSERT_EQ(real.stages[s].size(), ideal.stages[s].size());
            for (std::size_t i = 0; i < real.stages[s].size(); ++i) {
              EXPECT_EQ(real.stages[s][i].action, ideal.stages[s][i].action);
              EXPECT_EQ(real.stages[s][i].begin, ideal.stages[s][i].begin)
                  << to_text(layout) << " stage " << s << " step " << i;
            }
          }
        }
}

}  // namespace
}  // namespace lockstep::tests
