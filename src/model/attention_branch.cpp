#include "model/attention_branch.h"

namespace lockstep {

AttentionBranch::AttentionBranch(UnitLayout& layout, const Build& b, int unit, const BlockNames& names, Slot dy_amax)
    : norm_(layout, b, unit, names.norm1, b.how.weights_later),
      d_normed_(b.hands_back(unit)
                    ? b.own_rows(unit, "d_normed1", b.spec.width, Phase::input, read_by_norms(b), Half::second)
                    : -1),
      normed_(normed_slot(b, unit, "normed1", Attention::inputs(b), b.trained().qkv)),
      normed_again_(normed_again_slot(b, unit, "normed1 again", normed_, b.trained().qkv)),
      attention_(layout, b, unit, names, dy_amax),
      dropout_(b.spec.dropout, names.out),
      norm_outputs_(b.recompute(unit).norm_outputs),
      reads_normed_(b.trained().qkv) {}

ProductInput AttentionBranch::normed(Slot slot, const BranchSlots& slots, const Call& call) const {
  if (slot >= 0) return call.at[slot];
  return {call.at[slots.between.x], norm_.quantized(call)};
}

Tensor AttentionBranch::forward(const BranchSlots& slots, const Call& call) const {
  const Tensor x = call.at[slots.between.x];
  const ProductInput input = normed(normed_, slots, call);
  norm_.forward(call.at[normed_], x, call, attention_.inputs_amax(call));
  if (!dropout_.active(call) && call.split().size == 1) {
    attention_.forward(call.at[slots.between.y], input, call, x);
    return {};
  }
  Tensor branch = call.at[slots.alone];
  attention_.forward(branch, input, call);
  if (dropout_.active(call)) dropout_.apply(branch, branch, call);
  return branch;
}

void AttentionBranch::recompute(const BranchSlots& slots, const Call& call) const {
  norm_.forward(call.at[normed_], call.at[slots.between.x], call, attention_.inputs_amax(call));
  attention_.recompute(normed(normed_, slots, call), call);
}

void AttentionBranch::backward_input(const BranchSlots& slots, const Call& call) const {
  const Tensor &x = call.at[slots.between.x], &dy = call.at[slots.between.dy], &again = call.at[normed_again_];
  const ProductInput input = normed(normed_again_, slots, call);
  if (again && norm_outputs_ == NormOutputs::before_backward) norm_.forward(again, x, call);
  const Tensor d_branch = slots.gradient(dropout_, call);
  if (dropout_.active(call)) dropout_.apply(d_branch, dy, call);
  const bool by_backward = again && norm_outputs_ == NormOutputs::by_norm_backward && reads_normed_;
  if (slots.between.dx < 0) {  // nobody wants it
    if (by_backward) norm_.forward(again, x, call);
    return attention_.backward_input({}, d_branch, input, call);
  }
  attention_.backward_input(call.at[d_normed_], d_branch, input, call);
  norm_.backward_input(call.at[slots.between.dx], call.at[d_normed_], x, dy, call, by_backward ? again : Tensor{},
                       call.at[slots.between.dx_amax]);
}

void AttentionBranch::backward_weight(const BranchSlots& slots, const Call& call) const {
  attention_.backward_weight(slots.gradient(dropout_, call), normed(normed_again_, slots, call), call);
  norm_.backward_weight(call.at[d_normed_], call.at[slots.between.x], call);
}

}  // namespace lockstep
