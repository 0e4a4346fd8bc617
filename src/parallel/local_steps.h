// Local steps: replicas train apart for some steps, each with its own optimizer, and then agree on the weights.
//
// Between two synchronizations a group of ranks sums gradients among itself alone (mesh_groups.h, `replicas`) and
// updates its own weights. A synchronization makes of the N groups' weights w (docs/synchronization.md)
//
//   average (local SGD)   w = Σ w / N
//   nesterov (DiLoCo)     d = a - Σ w / N, the mean difference from the anchor a, the weights of the last
//                         synchronization; m = μ m + d; w = a - η (d + μ m)
//
// on the master weights, each rank with the ranks of other groups that hold the same part of every layer: Ψ elements of
// an all-reduce, in the canonical order, so all groups have the same bits afterwards. The optimizer's moments stay each
// group's own. The outer step is the program's SGD (kernels/optimizers.h) with d as its gradient, twice: with momentum
// at the rate η μ, which makes m, then without at the rate η.
//
// nesterov keeps the anchor and m beside the masters, in their type; both are taken at construction. A checkpoint keeps
// m ("outer_momentum"), and is of a moment when weights and anchor are one.
//
// One thread uses it; shards, ranks, memory and stream outlive it.
#pragma once
#include <array>
#include <map>
#include <vector>

#include "comm/communicator.h"
#include "kernels/step_control.h"
#include "parallel/squares.h"
#include "parallel/zero_shards.h"
#include "spec/run/sync_spec.h"

namespace lockstep {

class LocalSteps {
 public:
  static constexpr const char* kMomentumPart = "outer_momentum";

  // `others`: of the other groups. Of the shards, those that update.
  LocalSteps(const SyncSpec& sync, std::map<int, ZeroShard>& shards, Communicator& others, Memory& memory,
             Stream& stream);

  // All ranks call it, after the same update.
  void synchronize();
  // Of the last synchronization, of the elements that this rank counts: squares of the weights before it, and of their
  // mean (under nesterov of both less the anchor). So the sum over ranks of the first less that of the second is Σ over
  // groups of |w - mean|², as often as ranks of a group hold the same.
  enum Measured { kOfWeights, kOfMean };
  Tensor squares() const { return squares_.all(); }
  // The masters were set: they are what the next difference is from.
  void set_anchor();
  // Flat, of a unit; of average, none.
  Tensor momentum(int unit) const;

 private:
  struct Outer {
    Buffer anchor, momentum;
  };
  // Constants of the plain steps that a synchronization is made of.
  enum Control { kDifference, kMomentumStep, kPlainStep };
  static constexpr std::int64_t kControls = 3;
  Tensor control(Control which) const;
  void step(const Tensor& x, const Tensor& momentum, const Tensor& gradient, Control which);
  Tensor anchor(int unit) const;
  void measure(const ZeroShard& shard, const Tensor& weights, Measured which);

  SyncSpec sync_;
  std::map<int, ZeroShard>& shards_;
  Communicator& others_;
  Stream& stream_;
  std::map<int, Outer> outer_;  // by unit; of average, none
  Buffer controls_;
  Squares squares_;
};

}  // namespace lockstep
