// What is made of the ranks' steps: forecasts that follow their work, their bytes and their schedule.
#include "plan/layout_forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "plan/comparison.h"
#include "spec/pipeline/clock.h"
#include "spec/pipeline/stage_step.h"
#include "support/tiny_specs.h"
#include "train/run_data.h"

namespace lockstep::tests {
namespace {

using PieceKind = ScriptPiece::Kind;

// 1000 operations, 100 bytes copied and 500,000 bytes summed take a second; so do two messages that have no bytes.
Calibration round_numbers() {
  return {.machine = {.flops = 1000, .bytes = 100},
          .messages = {.latency = 0.5, .summed = 5e5, .copied = 1e6},
          .actions = {}};
}

// Two ranks that compute, sum something and are done, twice.
StepScript two_ranks(std::int64_t flops, std::int64_t bytes) {
  StepScript script;
  for (int rank = 0; rank < 2; ++rank) {
    RankScript& r = script.ranks.emplace_back();
    r.samples = 4;
    for (int step = 0; step < 2; ++step) {
      r.pieces.push_back({.kind = PieceKind::step_begins});
      r.pieces.push_back({.kind = PieceKind::work, .work = {.flops = flops, .matmul_flops = flops}});
      r.pieces.push_back({.kind = PieceKind::start, .message = step});
      r.pieces.push_back({.kind = PieceKind::wait, .message = step});
      r.pieces.push_back({.kind = PieceKind::step_ends});
    }
  }
  script.messages.assign(2, {.op = CommOp::all_reduce, .ranks = 2, .channel = 0, .bytes = bytes});
  return script;
}

TEST(LayoutForecast, FollowsOperationsBytesAndMachine) {
  const ForecastMachine cores{.cores = 2};
  LayoutForecast f = forecast_layout(two_ranks(3000, 2'000'000), round_numbers(), cores);
  EXPECT_NEAR(f.step_seconds, 3 + 2 + 0.5, 1e-9);  // both move what one would in four seconds
  EXPECT_NEAR(f.exposed_seconds, 2.5, 1e-9);
  EXPECT_FALSE(f.bubble);
  f = forecast_layout(two_ranks(6000, 2'000'000), round_numbers(), cores);
  EXPECT_NEAR(f.step_seconds, 6 + 2.5, 1e-9);
  EXPECT_NEAR(f.exposed_seconds, 2.5, 1e-9);
  f = forecast_layout(two_ranks(3000, 4'000'000), round_numbers(), cores);
  EXPECT_NEAR(f.step_seconds, 3 + 4.5, 1e-9);
  EXPECT_NEAR(f.exposed_seconds, 4.5, 1e-9);
  f = forecast_layout(two_ranks(3000, 8), round_numbers(), cores);  // hardly a byte
  EXPECT_NEAR(f.exposed_seconds, 0.5, 1e-9);
  f = forecast_layout(two_ranks(3000, 2'000'000), round_numbers(), {.cores = 1});
  EXPECT_NEAR(f.step_seconds, 6 + 4.5, 1e-2);

  Calibration slow = round_numbers();
  slow.actions.mean = 3;
  slow.actions.beside = 0.25;  // a sample
  f = forecast_layout(two_ranks(3000, 2'000'000), slow, cores);
  EXPECT_NEAR(f.step_seconds, 9 + 1 + 2.5, 1e-9);
}

TEST(Roofline, IsTheSlowerOfOperationsAndBytes) {
  const MachineRates rates{.flops = 1000, .bytes = 100};
  EXPECT_DOUBLE_EQ(roofline_seconds({.flops = 5000, .matmul_flops = 5000, .bytes_read = 90, .matmul_bytes = 90}, rates),
                   5);
  EXPECT_DOUBLE_EQ(
      roofline_seconds({.flops = 5000, .matmul_flops = 5000, .bytes_read = 900, .matmul_bytes = 900}, rates), 9);
  EXPECT_DOUBLE_EQ(
      roofline_seconds(
          {.flops = 5100, .matmul_flops = 5000, .bytes_read = 200, .bytes_written = 190, .matmul_bytes = 90}, rates),
      5 + 3);
}

// A rank of every stage with a unit of equal cost for every chunk, and a head that costs nothing: its backwards stand
// in its forward's step (spec/pipeline/stage_step.h), where theory has none. Or, without it, the last chunk is such a
// head.
StepScript pipeline_script(const PipelineSchedule& schedule, bool free_head = true) {
  StepScript script;
  std::map<std::tuple<bool, int, int>, int> numbers;
  const int chunks = static_cast<int>(schedule.stage_of.size());
  for (int stage = 0; stage < schedule.shape.stages; ++stage) {
    RankScript& rank = script.ranks.emplace_back();
    StepShape& shape = rank.step.shape;
    shape = {.units = free_head ? chunks + 1 : chunks, .micro = schedule.shape.micro, .stage = stage};
    shape.stages = {.begins = {}, .stage_of = schedule.stage_of};
    for (int chunk = 0; chunk < chunks; ++chunk) shape.stages.begins.push_back(chunk);
    rank.step.schedule = schedule;
    rank.step.actions = pipeline_step(schedule, shape);
    rank.pieces.push_back({.kind = PieceKind::step_begins});
    for (std::size_t i = 0; i < rank.step.actions.size(); ++i) {
      const Action a = rank.step.actions[i];
      const auto add = [&](PieceKind kind, int message = -1) {
        const std::int64_t flops = a.unit < chunks ? 1000 : 0;
        rank.pieces.push_back({.kind = kind,
                               .action = static_cast<int>(i),
                               .work = {.flops = flops, .matmul_flops = flops},
                               .message = message});
      };
      const auto message = [&](bool forward, int receiver) {
        const auto [at, first] = numbers.try_emplace({forward, receiver, a.micro}, int(script.messages.size()));
        if (first) script.messages.push_back({.op = CommOp::send, .ranks = 2, .channel = at->second});
        return at->second;
      };
      if (a.kind == ActionKind::send_output) add(PieceKind::start, message(true, a.unit + 1));
      if (a.kind == ActionKind::receive_input) add(PieceKind::start, message(true, a.unit));
      if (a.kind == ActionKind::send_input_gradient) add(PieceKind::start, message(false, a.unit - 1));
      if (a.kind == ActionKind::receive_output_gradient) add(PieceKind::start, message(false, a.unit));
      if (!is_phase(a.kind)) continue;
      if (a.kind == ActionKind::forward && shape.comes(a.unit)) add(PieceKind::wait, message(true, a.unit));
      if (a.kind == ActionKind::backward_input && shape.goes(a.unit)) add(PieceKind::wait, message(false, a.unit));
      for (const PieceKind kind : {PieceKind::action_runs, PieceKind::work, PieceKind::action_done}) add(kind);
    }
    rank.pieces.push_back({.kind = PieceKind::step_ends});
  }
  return script;
}

TEST(LayoutForecast, OfAPipelineHasTheBubbleOfTheTheory) {
  Calibration calibration = round_numbers();
  calibration.messages.latency = 0;
  const auto bubble = [&](ScheduleKind kind) {
    const PipelineShape shape{.stages = 4, .micro = 8, .chunks = usual_chunks(kind)};
    const PipelineSchedule schedule = make_schedule(kind, shape);
    const LayoutForecast f = forecast_layout(pipeline_script(schedule), calibration, {.cores = 4});
    const PipelineTimeline ideal = timed(schedule, [](int) { return ChunkTimes{}; });
    EXPECT_NEAR(f.bubble.value(), ideal.bubble(), 1e-9) << name_of(kind);
    EXPECT_NEAR(f.exposed_seconds, ideal.makespan() * ideal.bubble(), ideal.makespan() * 0.2) << name_of(kind);
    return *f.bubble;
  };
  EXPECT_NEAR(bubble(ScheduleKind::afab), 3.0 / 11, 1e-9);
  EXPECT_NEAR(bubble(ScheduleKind::one_f_one_b), 3.0 / 11, 1e-9);
  EXPECT_NEAR(bubble(ScheduleKind::interleaved), 3.0 / 19, 1e-9);
  EXPECT_NEAR(bubble(ScheduleKind::zb_h1), 3.0 / 27, 1e-9);
  EXPECT_LT(bubble(ScheduleKind::zb_v), 0.06);
}

// The steps that such a chunk has nothing left to do in are there all the same.
TEST(LayoutForecast, OfAStageThatIsTheHeadAloneHasABubbleToo) {
  Calibration calibration = round_numbers();
  calibration.messages.latency = 0;
  for (const ScheduleKind kind : {ScheduleKind::afab, ScheduleKind::one_f_one_b, ScheduleKind::zb_h1}) {
    const PipelineSchedule schedule = make_schedule(kind, {.stages = 3, .micro = 4, .chunks = 1});
    const LayoutForecast f = forecast_layout(pipeline_script(schedule, false), calibration, {.cores = 3});
    const PipelineTimeline ideal = timed(schedule, [](int chunk) {
      return chunk < 2 ? ChunkTimes{} : ChunkTimes{.forward = 3, .input = 0, .weight = 0};
    });
    EXPECT_NEAR(f.bubble.value(), ideal.bubble(), 1e-9) << name_of(kind);
  }
}

RunSpec six_layer_run() {
  RunSpec run;
  run.model = tiny_specs()[1].spec;
  run.model.heads = 4;
  run.model.kv_heads = 2;
  run.model.layers = 6;
  run.data.synthetic = SyntheticSpec{.vocabulary = run.model.vocabulary, .order = 1};
  run.data.seq = 8;
  run.train.global_batch = 12;
  run.run.threads = 1;
  run.layout.micro = 3;
  return run;
}

// The script of every layout is what its ranks send: as many calls as the recorder counts, each of them met by all its
// ranks; and the ranks come to their end on the simulator's clock.
TEST(StepScript, HoldsEveryCallOfEveryRank) {
  const RunSpec run = six_layer_run();
  const RunData data(run);
  std::vector<LayoutSpec> layouts = usual_layouts(run, 4);
  layouts.push_back({.dp = 2, .pp = 2, .micro = 3, .zero = 3});
  layouts.push_back({.pp = 2, .tp = 2, .micro = 3});
  bool piped = false;
  for (const LayoutSpec& layout : layouts) {
    const RunSpec spec = laid_out(run, layout);
    const StepScript script = step_script(spec, data);
    std::vector<int> started(script.messages.size());
    for (int rank = 0; rank < 4; ++rank) {
      const StepMessages counted = plan_run(spec, rank, &data).messages;
      int begun = 0, step = 0;
      for (const ScriptPiece& piece : script.ranks[static_cast<std::size_t>(rank)].pieces) {
        step += piece.kind == PieceKind::step_begins;
        if (piece.kind == PieceKind::start) {
          ++started[static_cast<std::size_t>(piece.message)];
          const ScriptMessage& m = script.messages[static_cast<std::size_t>(piece.message)];
          begun += step == 1 && m.op != CommOp::barrier;
        }
      }
      EXPECT_EQ(step, 2);
      EXPECT_GE(begun, counted.total().calls + counted.numbers.calls) << to_text(layout) << ", rank " << rank;
    }
    for (std::size_t m = 0; m < started.size(); ++m) EXPECT_EQ(started[m], script.messages[m].ranks);
    const LayoutForecast f = forecast_layout(
        script, {.machine = {.flops = 1e9, .bytes = 1e8}, .messages = {1e-5, 1e9, 1e9}, .actions = {}}, {.cores = 2});
    EXPECT_GT(f.step_seconds, 0) << to_text(layout);
    EXPECT_GE(f.exposed_seconds, 0);
    EXPECT_LE(f.exposed_seconds, f.step_seconds * (1 + 1e-9));
    EXPECT_EQ(f.bubble.has_value(), layout.pp > 1) << to_text(layout);
    piped = piped || layout.pp > 1;
    if (f.bubble) {
      EXPECT_THAT(*f.bubble, ::testing::AllOf(::testing::Gt(0), ::testing::Lt(1)));
    }
  }
  EXPECT_TRUE(piped);
}

// Twice the samples are about twice the work of every rank, whatever the layout sends.
TEST(StepScript, CountsTheWorkOfEveryRank) {
  RunSpec run = six_layer_run();
  const RunData data(run);
  const auto flops = [&](std::int64_t batch, const LayoutSpec& layout) {
    RunSpec spec = laid_out(run, layout);
    spec.train.global_batch = batch;
    std::int64_t sum = 0;
    const StepScript script = step_script(spec, data);
    for (const RankScript& rank : script.ranks)
      for (const ScriptPiece& piece : rank.pieces) sum += piece.work.matmul_flops;
    return sum;
  };
  const std::int64_t one = flops(12, {.micro = 3});
  EXPECT_EQ(flops(24, {.micro = 3}), 2 * one);
  EXPECT_EQ(flops(12, {.dp = 2, .micro = 3, .zero = 3}), one);
  EXPECT_EQ(flops(12, {.pp = 4, .micro = 3}), one);
}

}  // namespace
}  // namespace lockstep::tests
