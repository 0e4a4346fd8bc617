// Every schedule there is, up to eight stages, sixteen micro-batches and four chunks, executed on meta: it does what it
// is to do, and sends what it is to send.
#include <gtest/gtest.h>

#include "comm/meta/communicator.h"
#include "comm/recorder.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/tiny_specs.h"
#include "train/replica.h"

namespace lockstep::tests {
namespace {

class Counting final : public StepWatch {
 public:
  void comes_to(std::size_t) override {}
  void runs(const Action&) override {}
  void is_done_with(const Action& action) override { ++counts_[action.kind]; }
  std::map<ActionKind, int> counts_;
};

TEST(PipelineOnMeta, ExecutesEverySchedule) {
  int seen = 0;
  for (const ScheduleKind kind : kScheduleKinds)
    for (int p = 1; p <= 8; ++p)
      for (int v = 1; v <= 4; ++v) {
        bool refused = false;
        check_schedule(kind, {p, 1, v}, [&](auto&&...) { refused = true; });
        if (refused) continue;
        ModelSpec spec = tiny_specs()[static_cast<std::size_t>(seen) % 2].spec;  // tied in turn
        spec.layers = std::max(1, p * v - 1);                                    // a chunk has two units
        for (int m = 1; m <= 16; ++m) {
          const LayoutSpec layout{.pp = p, .schedule = kind, .chunks = v, .stages = StageRule::even(), .micro = m};
          const Replica::Options o{.spec = spec, .B = m, .T = 2, .layout = layout, .seed = 5};
          const int rank = seen++ % p;  // another one each time
          MetaDevice meta;
          CommLog log;
          Recorder ranks(std::make_unique<meta::Communicator>(rank, p), log);
          Replica replica(o, {ranks, ranks}, meta.memory(), meta.stream());
          Counting counting;
          replica.show(&counting);
          const TokenBatch batch = random_batch(o, 1);
          replica.step(batch.tokens, batch.targets);
          const StepShape& shape = replica.rank_step().shape;
          int units = 0, ends = 0;
          for (int u = 0; u < shape.units; ++u) {
            if (!shape.has(u)) continue;
            ++units;
            ends += shape.goes(u) + shape.comes(u);
          }
          for (const ActionKind phase : {ActionKind::forward, ActionKind::backward_input, ActionKind::backward_weight})
            EXPECT_EQ(counting.counts_[phase], units * m) << to_text(layout);
          const bool tie = shape.tie_is_sent() && (shape.has(shape.tie_owner) || shape.has(shape.tie_borrower));
          std::int64_t sends = 0;
          for (const auto& [key, total] : log.totals())
            if (std::get<CommOp>(key) == CommOp::send) sends += total.calls;
          EXPECT_EQ(sends, ends * m + (tie ? 1 : 0)) << to_text(layout) << ", rank " << rank;
        }
      }
  EXPECT_EQ(seen, 1024);
}

}  // namespace
}  // namespace lockstep::tests
