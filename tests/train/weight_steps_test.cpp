// A backward in two halves is two halves: the one that the stage before waits for touches no gradient of a weight, so
// nothing of the other runs before its time.
#include <gtest/gtest.h>

#include "comm/threads/run_ranks.h"
#include "support/devices.h"
#include "support/host_run.h"
#include "support/tiny_specs.h"
#include "tensor/transfer.h"
#include "train/replica.h"

namespace lockstep::tests {
namespace {

// The gradients of all weights of a rank, by name, before and after every action.
class GradientWatch final : public StepWatch {
 public:
  explicit GradientWatch(const Replica& replica, Stream& stream) : replica_(replica), stream_(stream) {}
  void comes_to(std::size_t) override {}
  void runs(const Action&) override { before_ = gradients(); }
  void is_done_with(const Action& action) override {
    if (!is_phase(action.kind)) return;
    const auto after = gradients();
    const bool touched = after != before_;
    const bool last = action.unit == replica_.model().units() - 1;
    if (action.kind == ActionKind::backward_input) {
      EXPECT_FALSE(touched) << to_string(action) << " has written a weight's gradient";
      ++inputs_;
    }
    if (action.kind == ActionKind::backward_weight) {
      EXPECT_TRUE(touched) << to_string(action) << " has written nothing";
      ++weights_;
    }
    if (action.kind == ActionKind::forward) {
      EXPECT_EQ(touched, last) << to_string(action);  // the head makes its weight's at once
    }
  }
  int inputs_ = 0, weights_ = 0;

 private:
  std::vector<std::vector<double>> gradients() const {
    std::vector<std::vector<double>> all;
    for (const Replica::Named& named : replica_.tensors()) all.push_back(to_doubles(named.gradient, stream_));
    return all;
  }
  const Replica& replica_;
  Stream& stream_;
  std::vector<std::vector<double>> before_;
};

TEST(WeightSteps, AloneMakeTheGradientsOfWeights) {
  for (const NamedSpec& model : tiny_specs())
    for (const auto& [kind, pp] : {std::pair{ScheduleKind::zb_h1, 2}, std::pair{ScheduleKind::zb_v, 1}}) {
      ModelSpec spec = model.spec;
      spec.tied = false;  // whose gradient would be added to another unit's
      spec.layers = 3;
      const LayoutSpec layout{.pp = pp, .schedule = kind, .chunks = usual_chunks(kind), .micro = 3};
      const Replica::Options o{.spec = spec, .B = 3, .T = 4, .layout = layout, .seed = 5};
      run_ranks(pp, [&](std::unique_ptr<Communicator> ranks) {
        CpuDevice cpu;
        Replica replica(o, {*ranks, *ranks}, cpu.memory(), cpu.stream());
        replica.init_weights();
        GradientWatch watch(replica, cpu.stream());
        replica.show(&watch);
        const TokenBatch batch = random_batch(o, 1);
        replica.step(batch.tokens, batch.targets);
        EXPECT_EQ(watch.inputs_, watch.weights_) << model.name;
        EXPECT_GE(watch.inputs_, 3 * 2) << model.name;
        replica.settle();
      });
    }
}

}  // namespace
}  // namespace lockstep::tests
