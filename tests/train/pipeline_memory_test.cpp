// What a stage holds: what meta says, to the byte, and as many micro-batches as its schedule keeps in flight.
#include <gtest/gtest.h>

#include "comm/meta/communicator.h"
#include "comm/threads/run_ranks.h"
#include "spec/step/world_faults.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/pipeline_layouts.h"
#include "support/tiny_specs.h"
#include "tensor/make_stream.h"
#include "train/replica.h"

namespace lockstep::tests {
namespace {

Replica::Options seven_layers(const ModelSpec& like, const LayoutSpec& layout, std::int64_t B = 12) {
  ModelSpec spec = like;
  spec.layers = 7;
  return {.spec = spec, .B = B, .T = 6, .layout = layout, .seed = 5};
}

struct HeldByStage {
  Ledger::Rows rows;
  std::int64_t activations, most_in_flight;
};

HeldByStage held_on_meta(const Replica::Options& o, int rank) {
  Ledger ledger;
  const auto memory = make_memory(Device::meta, ledger);
  const auto stream = make_stream(*memory, 1, Device::cpu);  // with what a real one takes
  meta::Communicator ranks(rank, static_cast<int>(o.layout.ranks()));
  const Replica replica(o, {ranks, ranks}, *memory, *stream);
  return {ledger.rows(), ledger.peak(Tag::activation), in_flight(replica.actions(), replica.rank_step().shape)};
}

TEST(PipelineMemory, IsWhatMetaSays) {
  for (const NamedSpec& named : tiny_specs())
    for (const ScheduleKind kind : kScheduleKinds) {
      LayoutSpec mesh = pipeline_layout(kind, 2, 2), sharded = pipeline_layout(kind, 2, 3);
      mesh.dp = 2, mesh.tp = 3, mesh.sp = Switch::on, mesh.zero = 1;
      sharded.dp = 2, sharded.zero = 3, sharded.grad_sync = GradSync::micro;
      for (const LayoutSpec& layout : {pipeline_layout(kind, 3, 4), mesh, sharded}) {
        const Replica::Options o = seven_layers(named.spec, layout);
        run_ranks(static_cast<int>(layout.ranks()), [&](std::unique_ptr<Communicator> group) {
          CpuDevice cpu;
          Replica replica(o, {*group, *group}, cpu.memory(), cpu.stream());
          replica.init_weights();
          const TokenBatch all = random_batch(o, 1);
          const auto part = [&, given = replica.given()](const std::vector<std::int32_t>& whole) {
            return std::span(whole).subspan(static_cast<std::size_t>(given.first * o.T),
                                            static_cast<std::size_t>(given.count * o.T));
          };
          replica.step(part(all.tokens), part(all.targets));
          replica.settle();
          EXPECT_EQ(cpu.memory().ledger().rows(), held_on_meta(o, group->rank()).rows)
              << named.name << ", " << to_text(layout) << ", rank " << group->rank();
        });
      }
    }
}

// One sample a micro-batch: what more of them take is what each keeps.
TEST(PipelineMemory, GrowsWithWhatIsInFlightAndNotWithMicroBatches) {
  const ModelSpec spec = tiny_specs()[0].spec;
  const int p = 4;
  const auto held = [&](ScheduleKind kind, int micro, int stage) {
    return held_on_meta(seven_layers(spec, pipeline_layout(kind, p, micro), micro), stage);
  };
  for (int s = 0; s < p; ++s) {
    // What one micro-batch more keeps on this stage.
    const std::int64_t each = held(ScheduleKind::afab, 9, s).activations - held(ScheduleKind::afab, 8, s).activations;
    EXPECT_GT(each, 0);
    for (const int micro : {4, 8, 16}) {
      const HeldByStage all = held(ScheduleKind::afab, micro, s);
      EXPECT_EQ(all.most_in_flight, micro);
      EXPECT_EQ(held(ScheduleKind::afab, micro + 1, s).activations - all.activations, each);
      for (const ScheduleKind kind :
           {ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1, ScheduleKind::zb_v}) {
        const HeldByStage one = held(kind, micro, s);
        const int most = most_in_flight(kind, {p, micro, usual_chunks(kind)}, s);
        EXPECT_LE(one.most_in_flight, most) << name_of(kind) << " stage " << s;
        if (micro >= 8) {
          // Places are found by rule of thumb, and more of them are found a little less well.
          EXPECT_LE(static_cast<double>(held(kind, 2 * micro, s).activations),
                    1.06 * static_cast<double>(one.activations))
              << name_of(kind) << " stage " << s;
        }
      }
      EXPECT_EQ(held(ScheduleKind::one_f_one_b, micro, s).most_in_flight, p - s);
      // No more than so many micro-batches take, one that comes early, and what is on its way out.
      const std::int64_t base = all.activations - micro * each, boundary = 6 * spec.width * 4;
      EXPECT_LE(held(ScheduleKind::one_f_one_b, micro, s).activations, base + (p - s) * each + 4 * boundary) << s;
    }
  }
}

// Where a backward is in halves, what is held between them is no more than the forward kept: a stage needs what its
// micro-batches in flight say, and the fullest one no more than 1f1b's.
TEST(PipelineMemory, OfZeroBubblesIsThatOf1f1b) {
  for (const NamedSpec& named : {tiny_specs()[0], tiny_specs()[4], tiny_specs()[5]})
    for (const std::int64_t tp : {1, 3}) {
      const int p = 4, micro = 16;
      ModelSpec spec = named.spec;
      spec.layers = 4 * p;
      spec.vocabulary = 16;  // the head beside them weighs little
      const auto fullest = [&](ScheduleKind kind) {
        LayoutSpec layout = pipeline_layout(kind, p, micro);
        layout.tp = tp;
        layout.sp = LayoutSpec::usual_sp(tp);
        layout.stages = StageRule::even();
        std::int64_t most = 0;
        for (int s = 0; s < p; ++s)
          most = std::max(most, held_on_meta({.spec = spec, .B = micro * 8, .T = 48, .layout = layout, .seed = 5},
                                             s * static_cast<int>(tp))
                                    .activations);
        return static_cast<double>(most);
      };
      const double usual = fullest(ScheduleKind::one_f_one_b);
      EXPECT_LE(fullest(ScheduleKind::zb_h1), 1.1 * usual) << named.name << ", tp=" << tp;
      EXPECT_LE(fullest(ScheduleKind::zb_v), 1.1 * usual) << named.name << ", tp=" << tp;
    }
}

}  // namespace
}  // namespace lockstep::tests
