#include "parallel/local_steps.h"

#include "kernels/elementwise.h"
#include "kernels/optimizers.h"
#include "tensor/transfer.h"

namespace lockstep {

LocalSteps::LocalSteps(const SyncSpec& sync, std::map<int, ZeroShard>& shards, Communicator& others, Memory& memory,
                       Stream& stream)
    : sync_(sync), shards_(shards), others_(others), stream_(stream), squares_(2, memory) {
  if (sync.outer == OuterStep::average) return;
  for (const auto& [u, shard] : shards) {
    if (!shard.updates()) continue;
    const Tensor master = shard.own_master();
    Outer& outer = outer_[u];
    outer.anchor = memory.allocate(master.bytes(), Tag::optimizer, "outer step");
    outer.momentum = memory.allocate(master.bytes(), Tag::optimizer, "outer step");
    fill({.y = anchor(u), .value = 0}, stream);
    fill({.y = momentum(u), .value = 0}, stream);
  }
  controls_ = memory.allocate(kControls * kStepControls * 8, Tag::workspace);
  const auto set = [&](Control which, double rate, double scale) {
    double host[kStepControls] = {};
    host[kLearningRate] = rate;
    host[kGradientScale] = scale;
    host[kFinite] = 1;
    upload(control(which), host, stream);
  };
  // What is sent is Σ w / N - a, which is -d.
  set(kDifference, 1, 1);
  set(kMomentumStep, sync.outer_lr * sync.outer_momentum, -1);
  set(kPlainStep, sync.outer_lr, -1);
}

Tensor LocalSteps::control(Control which) const {
  return view(controls_, DType::f64, {kStepControls}, static_cast<std::int64_t>(which) * kStepControls);
}

Tensor LocalSteps::anchor(int unit) const {
  const Tensor master = shards_.at(unit).own_master();
  return view(outer_.at(unit).anchor, master.dtype(), {master.elements()});
}

Tensor LocalSteps::momentum(int unit) const {
  if (!outer_.contains(unit)) return {};
  const Tensor master = shards_.at(unit).own_master();
  return view(outer_.at(unit).momentum, master.dtype(), {master.elements()});
}

// x -= rate · scale · gradient, or with momentum.
void LocalSteps::step(const Tensor& x, const Tensor& momentum, const Tensor& gradient, Control which) {
  sgd({.master = x,
       .weight = {},
       .momentum = momentum,
       .gradient = gradient,
       .control = control(which),
       .beta = momentum ? sync_.outer_momentum : 0,
       .decay = 0,
       .decayed = 0},
      stream_);
}

void LocalSteps::set_anchor() {
  for (const auto& [u, outer] : outer_) cast({.y = anchor(u), .x = shards_.at(u).own_master()}, stream_);
}

// What several ranks of a layer hold alike is counted by one of them.
void LocalSteps::measure(const ZeroShard& shard, const Tensor& weights, Measured which) {
  shard.each_piece([&](const ZeroShard::Piece& piece) {
    if (piece.tensor.counted && piece.elements > 0) squares_.add(which, piece.of(weights), stream_);
  });
}

void LocalSteps::synchronize() {
  squares_.begin();
  std::vector<Communicator::Started> started;
  for (const auto& [u, shard] : shards_) {
    if (!shard.updates()) continue;
    const Tensor master = shard.own_master();
    if (outer_.contains(u)) step(master, {}, anchor(u), kDifference);
    measure(shard, master, kOfWeights);
    started.push_back(others_.all_reduce(master, {.reduction = Reduction::mean}));
  }
  auto next = started.begin();
  for (auto& [u, shard] : shards_) {
    if (!shard.updates()) continue;
    (*next++)->wait();
    const Tensor master = shard.own_master();
    measure(shard, master, kOfMean);
    if (outer_.contains(u)) {
      step(anchor(u), momentum(u), master, kMomentumStep);
      step(anchor(u), {}, master, kPlainStep);
      cast({.y = master, .x = anchor(u)}, stream_);
    }
    shard.publish(stream_);
  }
}

}  // namespace lockstep
