// The feed-forward branch of a block: y = x + mlp(norm(x)).
//
// Its x may come as two tensors that are still to be joined (model/attention_branch.h): the norm then forms their sum,
// which is x, on its way. The last product adds the residual before it rounds, unless the branch stands by itself
// (model/branch_slots.h).
#pragma once
#include "model/branch_slots.h"
#include "model/mlp.h"
#include "model/norm.h"

namespace lockstep {

class FeedForwardBranch {
 public:
  // dy_amax: the slot of the largest magnitude of y's gradient, which BranchSlots has too; -1: there is none.
  FeedForwardBranch(UnitLayout& layout, const Build& build, int unit, const BlockNames& names, Slot dy_amax);

  // x = residual + branch. No branch: x is there.
  struct Joining {
    ConstTensor residual = {}, branch = {};
  };
  void forward(const BranchSlots& slots, const Joining& joining, const Call& call) const;
  // The forward's second run: what backward needs of it, which y is not.
  void recompute(const BranchSlots& slots, const Joining& joining, const Call& call) const;
  void backward_input(const BranchSlots& slots, const Call& call) const;
  void backward_weight(const BranchSlots& slots, const Call& call) const;

 private:
  void normalise(const BranchSlots& slots, const Joining& joining, const Call& call) const;

  // What the first projection reads: the norm's output in that slot, or x as the norm was given it.
  ProductInput normed(Slot slot, const BranchSlots& slots, const Call& call) const;

  Norm norm_;
  Slot d_normed_, normed_, normed_again_;
  Mlp mlp_;
  DropoutSite dropout_;
  NormOutputs norm_outputs_;
  bool reads_normed_;  // the weight phase does
};

}  // namespace lockstep
