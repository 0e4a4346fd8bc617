// Activations compressed between pipeline stages: what any layout learns with them is what a plain serial program
// learns that replaces each token's row where a stage ends (support/serial_compression.h).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "checkpoint/checkpoint_folder.h"
#include "comm/meta/communicator.h"
#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/pipeline_layouts.h"
#include "support/program.h"
#include "support/recorded_step.h"
#include "support/resumed_runs.h"
#include "support/serial_compression.h"

namespace lockstep::tests {
namespace {

constexpr int kSteps = 20;

Replica::Options coded_options(const ModelSpec& spec, const LayoutSpec& layout, const std::string& form) {
  Replica::Options o = learning_options(spec, layout, Precision::fp64);
  o.sync.compress_activations = Compression::parse(form).value();
  return o;
}

// `dp` ranks and micro-batches that divide 24 samples, or nearly.
LayoutSpec staged(int pp, ScheduleKind kind = ScheduleKind::one_f_one_b, int micro = 4) {
  return pipeline_layout(kind, pp, micro);
}

ModelSpec layers(ModelSpec spec, std::int64_t count) {
  spec.layers = count;
  return spec;
}

std::string said(const Replica::Options& o) {
  return fmt::format("{}, {}", to_text(o.layout), o.sync.compress_activations.text());
}

void expect_as_serial(const Replica::Options& o, int steps = kSteps) {
  const Learned serial = learn_serially(o, steps);
  EXPECT_GT(serial.norms[0], o.optimizer.clip) << "clipping is to be active";
  expect_close(learn(o, steps), serial, 1e-11, said(o));
}

class CompressedActivations : public ::testing::TestWithParam<std::string> {};

TEST_P(CompressedActivations, TeachStagesWhatTheSerialModelLearns) {
  for (const int pp : {2, 3, 4, 5})
    expect_as_serial(coded_options(layers(tiny_specs()[0].spec, 4),
                                   staged(pp, ScheduleKind::one_f_one_b, pp == 5 ? 6 : pp), GetParam()));
}

// A block of 256 elements and one of two more.
TEST_P(CompressedActivations, OfRowsOfSeveralBlocksTeachWhatTheSerialModelLearns) {
  ModelSpec wide = tiny_specs()[0].spec;
  wide.width = 258;
  expect_as_serial(coded_options(wide, staged(2), GetParam()), 3);
}

TEST_P(CompressedActivations, TeachEveryFamilyWhatTheSerialModelLearns) {
  for (const NamedSpec& model : tiny_specs()) {
    SCOPED_TRACE(model.name);
    expect_as_serial(coded_options(model.spec, staged(2), GetParam()));
  }
}

// Each with the boundaries that it has: two of one stage's chunks that follow each other send nothing.
TEST_P(CompressedActivations, OfEveryScheduleTeachWhatTheSerialModelLearns) {
  for (const ScheduleKind kind : kScheduleKinds)
    expect_as_serial(coded_options(layers(tiny_specs()[0].spec, 4), staged(2, kind), GetParam()));
}

// A row's code is of the row alone: whoever has it, beside whichever others.
TEST_P(CompressedActivations, OnAnyMeshTeachWhatTheSerialModelLearns) {
  const std::vector<LayoutSpec> all{
      {.dp = 2, .pp = 2, .micro = 3},
      {.dp = 3, .pp = 2, .micro = 1},
      {.dp = 5, .pp = 2, .micro = 2, .uneven = Switch::on},
      {.pp = 2, .tp = 3, .sp = Switch::on, .micro = 2},
      {.pp = 2, .tp = 3, .sp = Switch::off, .micro = 2},
      {.pp = 2, .cp = 3, .cp_order = CpOrder::plain, .micro = 2},
      {.dp = 2, .pp = 2, .micro = 3, .zero = 1},
      {.dp = 2, .pp = 2, .micro = 3, .zero = 3, .grad_sync = GradSync::micro},
      {.dp = 2, .pp = 2, .tp = 3, .sp = Switch::on, .micro = 1},
      {.dp = 2, .pp = 2, .micro = 2, .dp_kind = DpKind::server, .servers = 2},
  };
  for (const LayoutSpec& layout : all) expect_as_serial(coded_options(tiny_specs()[0].spec, layout, GetParam()), 5);
}

// Gradients too, with what they carry.
TEST_P(CompressedActivations, BesideCompressedGradientsTeachWhatTheSerialModelLearns) {
  for (const char* gradients : {"int8", "topk:0.3"}) {
    Replica::Options o = coded_options(tiny_specs()[0].spec, {.dp = 3, .pp = 2, .micro = 2}, GetParam());
    o.sync.compress = Compression::parse(gradients).value();
    expect_as_serial(o, 5);
  }
}

// Stages end at the same places, so rows are the same: the order of work is all that differs.
TEST_P(CompressedActivations, DoNotDependOnScheduleOverlapOrMemory) {
  for (const NamedSpec& model : {tiny_specs()[0], tiny_specs()[1], tiny_specs()[7]}) {
    Replica::Options o = coded_options(layers(model.spec, 3), staged(3, ScheduleKind::one_f_one_b, 6), GetParam());
    o.precision = Precision::fp32;
    const Learned usual = learn(o, 3);
    for (const ScheduleKind kind : {ScheduleKind::afab, ScheduleKind::zb_h1}) {
      Replica::Options other = o;
      other.layout.schedule = kind;
      expect_equal(learn(other, 3), usual, said(other));
    }
    Replica::Options other = o;
    other.layout.overlap = Switch::off;
    expect_equal(learn(other, 3), usual, "without overlap");
    other = o;
    other.how.memory.recompute = Recompute::full;
    expect_equal(learn(other, 3), usual, "recomputed");
    other = o;
    other.how.memory.offload_activations = Offload::host;
    expect_equal(learn(other, 3), usual, "offloaded");
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, CompressedActivations,
                         ::testing::Values("topk:0.05", "topk:0.3", "bf16", "int8", "onebit"), [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return c == ':' || c == '.'; });
                           return name;
                         });

// What the derivation says of a row, in bytes.
struct Derived {
  const char* form;
  double bytes;  // of a row of 24 fp32 elements
};
constexpr Derived kDerived[] = {{"bf16", 12 * 4},
                                {"int8", (1 + 6) * 4},
                                {"onebit", (2 + 1) * 4},
                                {"topk:0.05", (2 + 1) * 4},
                                {"topk:0.3", (8 + 4) * 4}};

// Each micro-batch crosses each boundary once there and once back, in as many words as its rows have; a tied table and
// its gradient are sent as they are.
TEST(CompressedActivationMessages, AreTheWordsOfRows) {
  for (const NamedSpec& model : {tiny_specs()[0], tiny_specs()[1]})
    for (const Derived& derived : kDerived)
      for (const ScheduleKind kind : kScheduleKinds) {
        LayoutSpec layout = staged(2, kind);
        layout.dp = 2;
        Replica::Options o{.spec = layers(model.spec, 4), .B = 24, .T = 9, .layout = layout, .seed = 5};
        std::vector<Recorded> plain;
        for (int r = 0; r < layout.ranks(); ++r) plain.push_back(on_meta(o, r));
        o.sync.compress_activations = Compression::parse(derived.form).value();
        const std::vector<Recorded> real = on_threads(o);
        const std::vector<int> stage_of = schedule_of(layout).stage_of;
        std::int64_t crossings = 0;
        for (std::size_t k = 1; k < stage_of.size(); ++k) crossings += stage_of[k - 1] != stage_of[k];
        const std::int64_t rows = layout.micro * (o.B / layout.dp / layout.micro) * o.T;
        for (std::size_t r = 0; r < real.size(); ++r) {
          SCOPED_TRACE(fmt::format("{}, rank {}", said(o), r));
          EXPECT_EQ(on_meta(o, static_cast<int>(r)).sent, real[r].sent);
          EXPECT_EQ(4.0 * static_cast<double>(real[r].elements(CommOp::send, DType::i32)),
                    static_cast<double>(crossings * rows) * derived.bytes);
          // What is still sent as it is.
          EXPECT_EQ(real[r].elements(CommOp::send, DType::f32),
                    plain[r].elements(CommOp::send, DType::f32) - crossings * rows * o.spec.width);
        }
      }
}

// Ranks of tensor parallelism without sequence parallelism send the same rows each; with it, and with context
// parallelism, each sends its own.
TEST(CompressedActivationMessages, AreOfARanksOwnRows) {
  for (LayoutSpec layout :
       {LayoutSpec{.pp = 2, .tp = 3, .sp = Switch::off}, LayoutSpec{.pp = 2, .tp = 3, .sp = Switch::on},
        LayoutSpec{.pp = 2, .cp = 3, .cp_order = CpOrder::plain}}) {
    layout.micro = 2;
    Replica::Options o{.spec = tiny_specs()[0].spec, .B = 2, .T = 9, .layout = layout, .seed = 5};
    o.sync.compress_activations = Compression::parse("int8").value();
    const std::vector<Recorded> real = on_threads(o);
    for (std::size_t r = 0; r < real.size(); ++r) {
      EXPECT_EQ(on_meta(o, static_cast<int>(r)).sent, real[r].sent) << said(o) << ", rank " << r;
      const std::int64_t rows = layout.tp == 3 && layout.sp == Switch::off ? 9 : 3;
      EXPECT_EQ(real[r].elements(CommOp::send, DType::i32), 2 * rows * 7) << said(o) << ", rank " << r;
    }
  }
}

// Room for the codes that are on their way, and not for tensors: to each stage at most two, from others as many as the
// schedule has under way.
TEST(CompressedActivationMemory, IsWhatMetaSaysAndCodesOnTheirWay) {
  for (const ScheduleKind kind : kScheduleKinds)
    for (const char* form : {"int8", "topk:0.3"}) {
      Replica::Options o{
          .spec = layers(tiny_specs()[0].spec, 4), .B = 24, .T = 9, .layout = staged(2, kind), .seed = 5};
      o.sync.compress_activations = Compression::parse(form).value();
      const std::int64_t words = form[0] == 'i' ? 7 : 12, rows = o.B / o.layout.micro * o.T;
      run_ranks(2, [&](std::unique_ptr<Communicator> group) {
        CpuDevice cpu;
        MetaDevice meta;
        meta::Communicator counted(group->rank(), 2);
        const Replica real(o, {*group, *group}, cpu.memory(), cpu.stream());
        const Replica planned(o, {counted, counted}, meta.memory(), meta.stream());
        for (const Tag tag : {Tag::parameter, Tag::gradient, Tag::optimizer, Tag::activation, Tag::communication})
          EXPECT_EQ(cpu.memory().ledger().current(tag), meta.memory().ledger().current(tag))
              << said(o) << ", " << name_of(tag);
        std::int64_t now = 0, most = 0;
        for (const Action& a : planned.actions()) {
          if (a.kind == ActionKind::receive_input || a.kind == ActionKind::receive_output_gradient)
            most = std::max(most, ++now);
          const bool first = planned.rank_step().shape.comes(a.unit), last = planned.rank_step().shape.goes(a.unit);
          now -= (a.kind == ActionKind::forward && first) + (a.kind == ActionKind::backward_input && last);
        }
        const Ledger::Rows held = meta.memory().ledger().rows();
        const auto row = held.find({Tag::communication, "compressed activations"});
        ASSERT_TRUE(row != held.end());
        EXPECT_EQ(row->second.current, round_up((2 + most) * rows * words * 4, kAlignment)) << said(o);
      });
    }
}

// The loss of an evaluation says how good the weights are: its activations are sent as they are.
TEST(CompressedActivations, AreNotThoseOfAnEvaluation) {
  for (const ScheduleKind kind : kScheduleKinds) {
    Replica::Options o{.spec = layers(tiny_specs()[0].spec, 4), .B = 24, .T = 9, .layout = staged(2, kind), .seed = 5};
    const TokenBatch batch = random_batch(o, 3);
    const auto evaluated = [&] {
      double loss = 0;
      run_ranks(2, [&](std::unique_ptr<Communicator> group) {
        CpuDevice cpu;
        Replica replica(o, {*group, *group}, cpu.memory(), cpu.stream());
        replica.init_weights();
        const double mine = replica.evaluate(batch.tokens, batch.targets);
        if (group->rank() == 0) loss = mine;
      });
      return loss;
    };
    const double exact = evaluated();
    o.sync.compress_activations = Compression::parse("onebit").value();
    EXPECT_EQ(evaluated(), exact) << name_of(kind);
  }
}

// A value that is not finite goes on to every stage; and no code stays under way when a step is searched for it.
TEST(CompressedActivations, BringValuesThatAreNotFiniteToEveryStage) {
  for (const char* form : {"topk:0.05", "bf16", "int8", "onebit"}) {
    Replica::Options o = coded_options(tiny_specs()[0].spec, staged(2), form);
    o.precision = Precision::fp32;
    run_ranks(2, [&](std::unique_ptr<Communicator> group) {
      CpuDevice cpu;
      Replica replica(o, {*group, *group}, cpu.memory(), cpu.stream());
      replica.init_weights();
      const TokenBatch batch = random_batch(o, 0);
      EXPECT_TRUE(replica.step(batch.tokens, batch.targets).updated) << form;
      float none = 0;
      const std::vector<Replica::Named> tensors = replica.tensors();
      float& weight = group->rank() == 0 ? tensors[0].master.data<float>()[batch.tokens[0] * o.spec.width] : none;
      const float was = std::exchange(weight, std::numeric_limits<float>::quiet_NaN());
      const Replica::Result bad = replica.step(batch.tokens, batch.targets);
      EXPECT_FALSE(bad.updated) << form << ", rank " << group->rank();
      EXPECT_FALSE(std::isfinite(bad.loss)) << form << ", rank " << group->rank();
      EXPECT_TRUE(replica.find_bad_value(batch.tokens, batch.targets).has_value()) << form;
      weight = was;
      EXPECT_TRUE(replica.step(batch.tokens, batch.targets).updated) << form << ", rank " << group->rank();
    });
  }
}

// There is nothing to keep: a run that resumes is the run that was saved, also in other layouts with stages that end at
// the same places.
TEST(CompressedActivations, LeaveNothingThatACheckpointWouldKeep) {
  const TemporaryFolder folder;
  RunSpec spec = resumed_run(layers(tiny_specs()[0].spec, 3), {.pp = 3, .micro = 2});
  spec.precision = Precision::fp64;
  spec.sync.compress_activations = Compression::parse("int8").value();
  const TrainedState whole = train_all(spec, folder.path() / "whole");
  const std::filesystem::path saved = folder.path() / "whole" / step_folder_name(kSavedStep);
  EXPECT_EQ(train_all(spec, folder.path() / "resumed", saved), whole);
  spec.layout = {.dp = 2, .pp = 3, .schedule = ScheduleKind::zb_h1, .micro = 4};
  EXPECT_LE(distance(train_all(spec, folder.path() / "elsewhere", saved), whole), 1e-11);
  spec.sync.compress_activations = {};
  EXPECT_GT(distance(train_all(spec, folder.path() / "exact", saved), whole), 1e-6);
}

}  // namespace
}  // namespace lockstep::tests
