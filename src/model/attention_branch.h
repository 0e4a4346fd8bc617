// The attention branch of a block: y = x + attention(norm(x)), where it is joined with x.
//
// The last product adds the residual before it rounds; where the branch stands by itself (model/branch_slots.h) its
// forward gives it back, and whoever called joins the two: the norm that comes next, in the same pass, or its unit.
#pragma once
#include "model/attention.h"
#include "model/branch_slots.h"
#include "model/norm.h"

namespace lockstep {

class AttentionBranch {
 public:
  // dy_amax: the slot of the largest magnitude of y's gradient, which BranchSlots has too; -1: there is none.
  AttentionBranch(UnitLayout& layout, const Build& build, int unit, const BlockNames& names, Slot dy_amax);

  // None: y is complete.
  Tensor forward(const BranchSlots& slots, const Call& call) const;
  // The forward's second run: what backward needs of it, which y is not.
  void recompute(const BranchSlots& slots, const Call& call) const;
  void backward_input(const BranchSlots& slots, const Call& call) const;
  void backward_weight(const BranchSlots& slots, const Call& call) const;

 private:
  // What the first projection reads: the norm's output in that slot, or x as the norm was given it.
  ProductInput normed(Slot slot, const BranchSlots& slots, const Call& call) const;

  Norm norm_;
  Slot d_normed_, normed_, normed_again_;
  Attention attention_;
  DropoutSite dropout_;
  NormOutputs norm_outputs_;
  bool reads_normed_;  // the weight phase does
};

}  // namespace lockstep
