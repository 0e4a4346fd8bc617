// Pipelines without a flush on a fake clock: between the first step and the last nobody waits.
#include <gtest/gtest.h>

#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/tiny_specs.h"
#include "support/virtual_time.h"
#include "train/loop.h"
#include "train/resume.h"

namespace lockstep::tests {
namespace {

constexpr double kUnit = 840;  // a forward; a backward takes two

struct Worked {
  double begin, end;
};

using WorkedLists = std::vector<std::vector<Worked>>;  // those of the steps, and the drain

// A forward takes one unit of time and a backward two, shared out to the phases that they are made of.
class UnflushedWatch final : public StepWatch {
 public:
  UnflushedWatch(const RankStep& step, FakeClock& clock, WorkedLists& lists)
      : last_(step.shape.last()),
        begins_{0, step.unflushed->steady, step.unflushed->drain},
        clock_(clock),
        lists_(lists) {
    for (const Action& a : step.unflushed->turn.actions)
      if (is_phase(a.kind) && a.micro == 0) ++phases_[is_backward(a)];
  }
  void comes_to(std::size_t index) override {
    if (std::ranges::find(begins_, index) != begins_.end()) lists_.emplace_back();
  }
  void runs(const Action&) override { begin_ = clock_.now(); }
  void is_done_with(const Action& action) override {
    if (!is_phase(action.kind)) return;
    const bool backward = is_backward(action);
    clock_.work((backward ? 2 : 1) * kUnit / phases_[backward]);
    lists_.back().push_back({begin_, clock_.now()});
  }

 private:
  // The last unit's backward is part of its forward.
  bool is_backward(const Action& a) const { return a.kind != ActionKind::forward && a.unit != last_; }
  int last_;
  std::array<std::size_t, 3> begins_;
  FakeClock& clock_;
  WorkedLists& lists_;
  std::array<int, 2> phases_{};
  double begin_ = 0;
};

// Equal stages: two units each.
RunSpec even_stages(ScheduleKind kind, int pp, int micro, int steps) {
  RunSpec spec;
  spec.model = tiny_specs()[0].spec;
  spec.model.layers = std::max(1, 2 * pp - 2);
  std::vector<std::int64_t> layers(static_cast<std::size_t>(pp), 2);
  --layers.front();
  if (pp > 1) --layers.back();
  spec.layout = {.pp = pp, .schedule = kind, .micro = micro};
  spec.layout.stages = StageRule::of_layers(layers);
  spec.data.synthetic = SyntheticSpec{.vocabulary = 16, .order = 1, .branching = 3};
  spec.data.seq = 3;
  spec.data.eval_share = 0;
  spec.train = {.steps = steps, .global_batch = micro, .save_last = false};
  spec.run.clock = ClockScope::off;
  spec.run.threads = 1;
  return spec;
}

// What the stages do in a run of the training loop: with all that ranks tell each other between two steps.
std::vector<WorkedLists> train_on_a_fake_clock(const RunSpec& spec) {
  std::vector<WorkedLists> all(static_cast<std::size_t>(spec.layout.pp));
  const RunData data(spec);
  run_ranks(static_cast<int>(spec.layout.pp), [&](std::unique_ptr<Communicator> inner) {
    const auto rank = static_cast<std::size_t>(inner->rank());
    FakeClock clock;
    OnFakeClock ranks(std::move(inner), clock);
    TrainingRun run(spec, Device::cpu, "", {.ranks = &ranks, .data = &data});
    run.init_weights();
    UnflushedWatch watch(run.replica().rank_step(), clock, all[rank]);
    run.replica().show(&watch);
    Progress progress = beginning(run);
    Watcher nobody;
    EXPECT_EQ(train(run, progress, nobody), Ending::finished);
    run.replica().show(nullptr);
  });
  return all;
}

TEST(PipeDreamOnAFakeClock, HasNoBubbleInTheSteadyState) {
  constexpr int kSteps = 5;
  for (const ScheduleKind kind : {ScheduleKind::pipedream, ScheduleKind::pipedream_2bw})
    for (const int pp : {1, 2, 3, 4, 8})
      for (const int micro : {pp, 2 * pp + 1}) {
        const auto stages = train_on_a_fake_clock(even_stages(kind, pp, micro, kSteps));
        for (int s = 0; s < pp; ++s) {
          double idle = 0, busy = 0;
          const auto& lists = stages[static_cast<std::size_t>(s)];
          const std::vector<Worked>* before = nullptr;
          for (int step = 1; step < kSteps; ++step) {  // all but the first and the drain
            const std::vector<Worked>& list = lists[static_cast<std::size_t>(step)];
            for (std::size_t i = 0; i < list.size(); ++i) {
              busy += list[i].end - list[i].begin;
              if (i > 0) idle += list[i].begin - list[i - 1].end;
            }
            if (before) idle += list.front().begin - before->back().end;
            before = &list;
          }
          EXPECT_EQ(idle, 0) << name_of(kind) << " pp=" << pp << " micro=" << micro << " stage " << s;
          EXPECT_EQ(busy, 3 * kUnit * micro * (kSteps - 1));
        }
        // With a flush every step would have waited p - 1 forwards and backwards.
        double end = 0;
        for (const auto& stage : stages)
          for (const auto& list : stage)
            if (!list.empty()) end = std::max(end, list.back().end);
        EXPECT_EQ(end, 3 * kUnit * (kSteps * micro + pp - 1)) << name_of(kind) << " pp=" << pp << " micro=" << micro;
      }
}

}  // namespace
}  // namespace lockstep::tests
