// What a plan counts of a phase once, for all micro-batches that do the same, is what comes of running every one.
#include "plan/phase_counts.h"

#include <gtest/gtest.h>

#include <limits>

#include "comm/meta/communicator.h"
#include "comm/recorder.h"
#include "plan/plan.h"
#include "plan/step_messages.h"
#include "support/tiny_specs.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

TEST(PhaseCounts, AreWhatEveryPhaseComesTo) {
  LayoutSpec zb_h1{.pp = 2, .schedule = ScheduleKind::zb_h1, .tp = 3, .sp = Switch::on, .micro = 4};
  LayoutSpec zb_v{.dp = 2, .pp = 2, .schedule = ScheduleKind::zb_v, .chunks = 2, .micro = 6, .zero = 1};
  LayoutSpec sharded{.dp = 2, .micro = 3, .zero = 3, .grad_sync = GradSync::micro};
  LayoutSpec samples{.cp = 2, .micro = 4};
  LayoutSpec central{.dp = 3, .micro = 2, .dp_kind = DpKind::central};
  for (const NamedSpec& named : {tiny_specs()[0], tiny_specs()[1], tiny_specs().back()})
    for (const LayoutSpec& layout : {LayoutSpec{.micro = 5}, zb_h1, zb_v, sharded, samples, central}) {
      RunSpec spec;
      spec.model = named.spec;
      spec.model.layers = 5;
      spec.data.synthetic = SyntheticSpec{.vocabulary = 8, .order = 1, .branching = 2};
      spec.data.seq = 12;
      spec.train.global_batch = layout.dp * layout.micro * 2;
      spec.train.eval_every = 1;
      spec.layout = layout;
      for (int rank = 0; rank < layout.ranks(); ++rank) {
        CommLog log(std::numeric_limits<std::size_t>::max());
        Recorder ranks(std::make_unique<meta::Communicator>(rank, static_cast<int>(layout.ranks())), log);
        TrainingRun run(spec, Device::meta, "", {.ranks = &ranks});
        run.init_weights();
        meta::Stream& stream = meta::Stream::of(run.stream());
        stream.work() = {};
        const std::size_t before = log.begun();
        run.step(0, 1e-3);
        const std::vector<CommRecord> records = log.last();
        const Plan plan = plan_run(spec, rank);
        const std::string words = named.name + ", " + to_text(layout) + ", rank " + std::to_string(rank);
        EXPECT_EQ(plan.executed, stream.work()) << words;
        EXPECT_EQ(plan.messages, step_messages(std::span(records).subspan(before), layout)) << words;
        run.evaluate();
        run.save({});
        EXPECT_EQ(plan.rows, run.ledger().rows()) << words;
      }
    }
}

}  // namespace
}  // namespace lockstep::tests
