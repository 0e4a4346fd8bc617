#include "model/feed_forward_branch.h"

#include "kernels/elementwise.h"

namespace lockstep {

FeedForwardBranch::FeedForwardBranch(UnitLayout& layout, const Build& b, int unit, const BlockNames& names,
                                     Slot dy_amax)
    : norm_(layout, b, unit, names.norm2, b.how.weights_later),
      d_normed_(b.feed_forward_hands_back(unit) ? b.own_rows(unit, "d_normed2", b.spec.width, Phase::input,
                                                             read_by_norms(b), Half::first, read_in_half(b))
                                                : -1),
      normed_(normed_slot(b, unit, "normed2", Mlp::inner(b), b.trained().up)),
      normed_again_(normed_again_slot(b, unit, "normed2 again", normed_, b.trained().up)),
      mlp_(layout, b, unit, names, dy_amax),
      dropout_(b.spec.dropout, names.down),
      norm_outputs_(b.recompute(unit).norm_outputs),
      reads_normed_(b.trained().up) {}

ProductInput FeedForwardBranch::normed(Slot slot, const BranchSlots& slots, const Call& call) const {
  if (slot >= 0) return call.at[slot];
  return {call.at[slots.between.x], norm_.quantized(call)};
}

void FeedForwardBranch::normalise(const BranchSlots& slots, const Joining& joining, const Call& call) const {
  const Tensor &x = call.at[slots.between.x], &normed = call.at[normed_];
  const Tensor amax = mlp_.inputs_amax(call);
  if (joining.branch.none())
    norm_.forward(normed, x, call, amax);
  else
    norm_.forward(normed, x, joining.branch, joining.residual, call, amax);
}

void FeedForwardBranch::forward(const BranchSlots& slots, const Joining& joining, const Call& call) const {
  normalise(slots, joining, call);
  const Tensor &x = call.at[slots.between.x], &y = call.at[slots.between.y];
  const ProductInput input = normed(normed_, slots, call);
  if (!dropout_.active(call) && call.split().size == 1) return mlp_.forward(y, input, call, x);
  const Tensor& branch = call.at[slots.alone];
  mlp_.forward(branch, input, call);
  if (dropout_.active(call)) dropout_.apply(branch, branch, call);
  add({.y = y, .a = x, .b = branch}, call.stream);
}

void FeedForwardBranch::recompute(const BranchSlots& slots, const Joining& joining, const Call& call) const {
  normalise(slots, joining, call);
  mlp_.recompute(normed(normed_, slots, call), call);
}

void FeedForwardBranch::backward_input(const BranchSlots& slots, const Call& call) const {
  const Tensor &x = call.at[slots.between.x], &dy = call.at[slots.between.dy], &again = call.at[normed_again_];
  const ProductInput input = normed(normed_again_, slots, call);
  if (again && norm_outputs_ == NormOutputs::before_backward) norm_.forward(again, x, call);
  const Tensor d_branch = slots.gradient(dropout_, call);
  if (dropout_.active(call)) dropout_.apply(d_branch, dy, call);
  const bool by_backward = again && norm_outputs_ == NormOutputs::by_norm_backward && reads_normed_;
  if (slots.between.dx < 0) {  // nobody wants it
    if (by_backward) norm_.forward(again, x, call);
    return mlp_.backward_input({}, d_branch, input, call);
  }
  mlp_.backward_input(call.at[d_normed_], d_branch, input, call);
  norm_.backward_input(call.at[slots.between.dx], call.at[d_normed_], x, dy, call, by_backward ? again : Tensor{},
                       call.at[slots.between.dx_amax]);
}

void FeedForwardBranch::backward_weight(const BranchSlots& slots, const Call& call) const {
  mlp_.backward_weight(slots.gradient(dropout_, call), normed(normed_again_, slots, call), call);
  norm_.backward_weight(call.at[d_normed_], call.at[slots.between.x], call);
}

}  // namespace lockstep
