// What stages send: the recorder of real ranks, the recorder on meta, and the arithmetic of boundaries are one.
#include <gtest/gtest.h>

#include "support/pipeline_layouts.h"
#include "support/recorded_step.h"
#include "support/tiny_specs.h"

namespace lockstep::tests {
namespace {

Replica::Options seven_layers_in_bf16(const ModelSpec& like, const LayoutSpec& layout) {
  ModelSpec spec = like;
  spec.layers = 7;
  return {.spec = spec, .B = 12, .T = 6, .layout = layout, .precision = Precision::bf16, .seed = 5};
}

TEST(PipelineMessages, MetaCountsWhatStagesSend) {
  for (const NamedSpec& named : tiny_specs())
    for (const ScheduleKind kind : kScheduleKinds) {
      LayoutSpec cut = pipeline_layout(kind, 2, 2), sharded = pipeline_layout(kind, 2, 3);
      cut.tp = 3, cut.sp = Switch::on;
      sharded.dp = 2, sharded.zero = 3, sharded.grad_sync = GradSync::micro;
      for (const LayoutSpec& layout : {pipeline_layout(kind, 3, 4), cut, sharded}) {
        const Replica::Options o = seven_layers_in_bf16(named.spec, layout);
        const std::vector<Recorded> real = on_threads(o);
        for (int r = 0; r < layout.ranks(); ++r)
          EXPECT_EQ(on_meta(o, r).sent, real[static_cast<std::size_t>(r)].sent)
              << named.name << ", " << to_text(layout) << ", rank " << r;
      }
    }
}

// Every boundary between two stages is crossed once there and once back by every micro-batch. A tied table's gradient
// goes from the last stage to the first, and the table back: once a step.
TEST(PipelineMessages, AreMicroBatchesTimesBoundaries) {
  for (const NamedSpec& named : tiny_specs())
    for (const ScheduleKind kind : kScheduleKinds)
      for (const int pp : {2, 4})
        for (const int micro : {1, 3, 4}) {
          const LayoutSpec layout = pipeline_layout(kind, pp, micro);
          const Replica::Options o = seven_layers_in_bf16(named.spec, layout);
          const std::int64_t tensor = o.B / micro * o.T * o.spec.width;
          const std::vector<int> stage_of = schedule_of(layout).stage_of;
          const bool apart = o.spec.tied && stage_of.front() != stage_of.back();
          for (int stage = 0; stage < pp; ++stage) {
            std::int64_t crossings = 0;
            for (std::size_t k = 1; k < stage_of.size(); ++k)
              if (stage_of[k - 1] != stage_of[k]) crossings += (stage_of[k - 1] == stage) + (stage_of[k] == stage);
            const Recorded sent = on_meta(o, stage);
            const std::int64_t table = o.spec.vocabulary * o.spec.width;
            const bool owns = apart && stage == stage_of.front(), borrows = apart && stage == stage_of.back();
            EXPECT_EQ(sent.elements(CommOp::send, DType::bf16), micro * crossings * tensor + (owns ? sent.owned[0] : 0))
                << named.name << ", " << to_text(layout) << ", stage " << stage;
            EXPECT_EQ(sent.elements(CommOp::send, DType::f32), borrows ? table : 0)
                << named.name << ", " << to_text(layout) << ", stage " << stage;
            for (const auto& [key, counts] : sent.sent)
              EXPECT_TRUE(point_to_point(key.first) || counts[1] <= 1024) << name_of(key.first);  // the norm's bins
          }
        }
}

// Weights that are cut are gathered for every step of a chunk, or kept while there is room.
TEST(PipelineMessages, GathersAreFewerWhereWeightsMayStay) {
  for (const ScheduleKind kind : kScheduleKinds) {
    LayoutSpec layout = pipeline_layout(kind, 2, 4);
    layout.dp = 3, layout.zero = 3, layout.grad_sync = GradSync::micro;
    Replica::Options o = seven_layers_in_bf16(tiny_specs()[0].spec, layout);
    o.spec.width = 240, o.spec.ffn_width = 1024;  // some MiB a block
    for (int rank : {0, 1}) {
      const auto gathered = [&] { return on_meta(o, rank).elements(CommOp::all_gather, DType::bf16); };
      const std::int64_t each_time = gathered();
      o.how.memory.gathered = 4;  // MiB: a block or two
      const std::int64_t some = gathered();
      o.layout.reshard = Reshard::never;
      const std::int64_t never = gathered();
      o.how.memory.gathered = 0, o.layout.reshard = Reshard::forward;
      EXPECT_LT(some, each_time) << name_of(kind) << ", rank " << rank;
      EXPECT_LT(never, some) << name_of(kind) << ", rank " << rank;
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
