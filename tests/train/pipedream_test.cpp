// Pipelines without a flush against the serial model of them (support/serial_pipedream.h).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/pipedream_ranks.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

double difference(const PlainValues& a, const PlainValues& b) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t e = 0; e < a[i].size(); ++e) {
      error += std::pow(a[i][e] - b[i][e], 2);
      size += std::pow(b[i][e], 2);
    }
  return std::sqrt(error / size);
}

void expect_is_the_serial_model(const PipeDreamRun& run) {
  const std::string what = to_text(run.options.layout);
  const PipeDreamTrained many = train_pipedream(run);
  const PipeDreamTrajectory one = simulate_pipedream(run, many.stage_of);
  ASSERT_EQ(one.losses.size(), many.run.losses.size()) << what;
  for (std::size_t step = 0; step < one.losses.size(); ++step)
    EXPECT_NEAR(many.run.losses[step], one.losses[step], 1e-11 * one.losses[step]) << what << ", step " << step;
  EXPECT_LE(difference(many.run.weights, one.weights), 1e-11) << what;
}

class PipeDreamOfFamilies : public ::testing::TestWithParam<NamedSpec> {};

TEST_P(PipeDreamOfFamilies, IsTheSerialModel) {
  for (const ScheduleKind kind : {ScheduleKind::pipedream, ScheduleKind::pipedream_2bw})
    for (const auto& [pp, micro] : {std::pair{1, 2}, {2, 1}, {3, 3}, {4, 5}})
      expect_is_the_serial_model(pipedream_run(GetParam().spec, kind, pp, micro));
}

INSTANTIATE_TEST_SUITE_P(All, PipeDreamOfFamilies, ::testing::ValuesIn(tiny_specs()),
                         [](const auto& info) { return info.param.name; });

TEST(PipeDream, IsTheSerialModelOnUpToEightStages) {
  const ModelSpec spec = tiny_specs()[0].spec;
  for (const ScheduleKind kind : {ScheduleKind::pipedream, ScheduleKind::pipedream_2bw})
    for (const auto& [pp, micro] : {std::pair{5, 4}, {6, 7}, {7, 6}, {8, 9}})
      expect_is_the_serial_model(pipedream_run(spec, kind, pp, micro));
}

TEST(PipeDream, IsTheSerialModelWithSgdAndWithoutClipping) {
  for (const ScheduleKind kind : {ScheduleKind::pipedream, ScheduleKind::pipedream_2bw}) {
    PipeDreamRun run = pipedream_run(tiny_specs()[2].spec, kind, 3, 4);
    run.options.optimizer.kind = OptimizerKind::sgd;
    run.options.optimizer.momentum = 0.9;
    run.options.optimizer.clip = 0;
    expect_is_the_serial_model(run);
  }
}

TEST(PipeDream, IsTheSerialModelWhereItIsDrained) {
  for (const ScheduleKind kind : {ScheduleKind::pipedream, ScheduleKind::pipedream_2bw})
    for (const std::set<std::int64_t>& drained : {std::set<std::int64_t>{1}, {7, 8, 15}, {2, 4, 6, 19}}) {
      PipeDreamRun run = pipedream_run(tiny_specs()[0].spec, kind, 4, 3);
      run.drained = drained;
      expect_is_the_serial_model(run);
    }
}

// Replicas sum the gradients of every update; the parts of a layer find one norm together.
TEST(PipeDream, IsTheSerialModelBesideDataAndTensorParallel) {
  const ModelSpec spec = tiny_specs()[0].spec;
  for (const ScheduleKind kind : {ScheduleKind::pipedream, ScheduleKind::pipedream_2bw}) {
    expect_is_the_serial_model(pipedream_run(spec, kind, 2, 2, 3));
    expect_is_the_serial_model(pipedream_run(spec, kind, 2, 3, 1, 3));
    expect_is_the_serial_model(pipedream_run(spec, kind, 2, 2, 2, 3));
    PipeDreamRun uneven = pipedream_run(spec, kind, 2, 3, 2);
    uneven.options.B = 3 * 5;  // two samples and three of each micro-batch
    uneven.options.layout.uneven = Switch::on;
    expect_is_the_serial_model(uneven);
  }
}

// What a backward computes again, it computes with its forward's version.
TEST(PipeDream, IsTheSerialModelWithRecomputation) {
  for (const ScheduleKind kind : {ScheduleKind::pipedream, ScheduleKind::pipedream_2bw})
    for (const Recompute what : {Recompute::elementwise, Recompute::projections, Recompute::full}) {
      PipeDreamRun run = pipedream_run(tiny_specs()[0].spec, kind, 3, 4);
      run.steps = 6;
      run.options.how.memory.recompute = what;
      expect_is_the_serial_model(run);
    }
}

// The model is none that always says yes: other versions, or the gradients of 1f1b, are other weights.
TEST(PipeDream, IsNotThePipelineWithAFlush) {
  const PipeDreamRun run = pipedream_run(tiny_specs()[0].spec, ScheduleKind::pipedream, 3, 3);
  const PipeDreamTrained many = train_pipedream(run);
  PipeDreamRun drained = run;
  for (std::int64_t step = 1; step <= run.steps; ++step) drained.drained.insert(step);
  EXPECT_GT(difference(simulate_pipedream(drained, many.stage_of).weights, many.run.weights), 1e-6);
}

// One stage has nobody to wait for: it learns what a run learns whose steps are these micro-batches, to the bit.
TEST(PipeDream, OfOneStageIsPlainTraining) {
  PipeDreamRun run = pipedream_run(tiny_specs()[0].spec, ScheduleKind::pipedream, 1, 3);
  const PipeDreamTrained without = train_pipedream(run);
  Replica::Options o = run.options;
  o.layout = {};
  o.B = run.options.B / 3;
  HostRun plain(o);
  plain.replica->init_weights();
  for (std::int64_t step = 0; step < run.steps; ++step) {
    const TokenBatch all = run.batch(step);
    plain.replica->set_learning_rate(run.rate(step));
    for (std::int64_t j = 0; j < 3; ++j) {
      const auto part = [&](const std::vector<std::int32_t>& whole) {
        return std::span(whole).subspan(static_cast<std::size_t>(j * o.B * o.T), static_cast<std::size_t>(o.B * o.T));
      };
      plain.replica->step(part(all.tokens), part(all.targets));
    }
  }
  std::size_t i = 0;
  for (const Replica::Named& t : plain.replica->tensors())
    EXPECT_EQ(to_doubles(t.master, *plain.stream), without.run.weights[i++]) << t.tensor.name;
}

// Every stage of 2BW is one step behind, so that without clipping it does not matter where stages are cut. With
// dropout, whose masks are of steps and samples.
TEST(PipeDream, OfTwoVersionsIsTheSameOnAnyNumberOfStages) {
  const auto of = [&](std::int64_t pp) {
    PipeDreamRun run = pipedream_run(tiny_specs().back().spec, ScheduleKind::pipedream_2bw, pp, 4);
    run.options.spec.layers = 3;
    run.options.spec.dropout = 0.2;
    run.options.optimizer.clip = 0;
    return train_pipedream(run).run;
  };
  const PipeDreamTrajectory one = of(1);
  for (const std::int64_t pp : {2, 3, 5}) {
    const PipeDreamTrajectory many = of(pp);
    EXPECT_EQ(many.losses, one.losses) << pp;
    EXPECT_TRUE(many.weights == one.weights) << pp;
  }
}

// Makes the gradient of the first unit bad, once it is whole.
class PoisonsGradient final : public StepWatch {
 public:
  explicit PoisonsGradient(Replica& replica) : replica_(replica) {}
  void comes_to(std::size_t) override {}
  void runs(const Action&) override {}
  void is_done_with(const Action& action) override {
    if (action.kind != ActionKind::reduce || action.unit != 0) return;
    replica_.tensors().front().gradient.data<double>()[0] = std::numeric_limits<double>::quiet_NaN();
  }

 private:
  Replica& replica_;
};

// The first stage's update comes with the drain: all ranks hear there that it was none.
TEST(PipeDream, ThatDrainsABadValueIsNotWhole) {
  const PipeDreamRun run = pipedream_run(tiny_specs()[0].spec, ScheduleKind::pipedream, 2, 1);
  run_ranks(2, [&](std::unique_ptr<Communicator> group) {
    CpuDevice cpu;
    Replica replica(run.options, {*group, *group}, cpu.memory(), cpu.stream());
    replica.init_weights();
    const auto weights = [&] { return to_doubles(replica.tensors().front().master, cpu.stream()); };
    const std::vector<double> before = weights();
    PoisonsGradient poison(replica);
    if (group->rank() == 0) replica.show(&poison);
    const TokenBatch batch = run.batch(0);
    EXPECT_TRUE(replica.step(batch.tokens, batch.targets).updated);
    EXPECT_FALSE(replica.drain());
    EXPECT_EQ(weights() == before, group->rank() == 0) << "a bad value never updates";
  });
}

}  // namespace
}  // namespace lockstep::tests
