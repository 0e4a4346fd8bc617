#include "model/block.h"

#include <fmt/format.h>

#include "kernels/elementwise.h"

namespace lockstep {

namespace {
// The gradient of a branch: that of the residual it joined, or what the branch's dropout left of it.
Tensor branch_gradient(const DropoutSite& site, Slot dropped, Tensor gradient, const Call& call) {
  return site.active(call) ? call.at[dropped] : gradient;
}

// What a norm gives is kept for the weight phase, or lives in the forward alone.
Slot normed_slot(const Build& b, int unit, const char* name) {
  const bool keeps = b.recompute(unit).keeps_norm_outputs();
  return b.own_rows(unit, name, b.spec.width, Phase::forward, keeps ? Phase::weight : Phase::forward);
}

// The last phase that reads what a norm was given and the gradient of what it gave; of the second norm, whose input
// phase is in the first half.
Phase read_by_norms(const Build& b) { return b.how.weights_later ? Phase::input : Phase::weight; }
Half norms_half(const Build& b) { return b.how.weights_later ? Half::first : Half::second; }

Slot again_slot(const Build& b, int unit, const char* name, Slot first) {
  if (b.recompute(unit).keeps_norm_outputs()) return first;
  return b.own_rows(unit, name, b.spec.width, Phase::input, Phase::weight);
}
}  // namespace

Block::Block(const Build& b, int unit, std::int64_t layer, const Between& between)
    : Unit(fmt::format("block.{}", layer)),
      names_(block_names(b.spec, layer)),
      between_(between),
      norm1_(layout_, b, unit, names_.norm1, b.how.weights_later),
      d_normed1_(b.own_rows(unit, "d_normed1", b.spec.width, Phase::input, read_by_norms(b), Half::second)),
      normed1_(normed_slot(b, unit, "normed1")),
      normed1_again_(again_slot(b, unit, "normed1 again", normed1_)),
      attention_(layout_, b, unit, names_),
      d_mid_(b.own_rows(unit, "d_mid", b.spec.width, Phase::input, b.last_of_branch_gradient())),
      mid_(b.own_rows(unit, "mid", b.spec.width, Phase::forward, read_by_norms(b), Half::first, norms_half(b))),
      norm2_(layout_, b, unit, names_.norm2, b.how.weights_later),
      d_normed2_(
          b.own_rows(unit, "d_normed2", b.spec.width, Phase::input, read_by_norms(b), Half::first, norms_half(b))),
      normed2_(normed_slot(b, unit, "normed2")),
      normed2_again_(again_slot(b, unit, "normed2 again", normed2_)),
      mlp_(layout_, b, unit, names_),
      attention_dropout_(b.spec.dropout, names_.out),
      mlp_dropout_(b.spec.dropout, names_.down),
      norm_outputs_(b.recompute(unit).norm_outputs),
      forward_again_(b.recompute(unit).forward_again) {
  const std::int64_t C = b.spec.width;
  if (b.spec.dropout > 0 || b.splits()) branch_ = b.own_rows(unit, "branch", C, Phase::forward, Phase::forward);
  if (b.spec.dropout > 0) {
    d_dropped1_ = b.own_rows(unit, "d_dropped1", C, Phase::input, Phase::weight);
    d_dropped2_ = b.own_rows(unit, "d_dropped2", C, Phase::input, Phase::weight);
  }
}

void Block::attend(const Call& call) const {
  const Tensor &x = call.at[between_.x], &mid = call.at[mid_];
  const Tensor &normed1 = call.at[normed1_], &normed2 = call.at[normed2_];
  const bool split = call.split().size > 1;
  norm1_.forward(normed1, x, call);
  if (attention_dropout_.active(call) || split) {
    const Tensor& branch = call.at[branch_];
    attention_.forward(branch, normed1, call);
    if (attention_dropout_.active(call)) attention_dropout_.apply(branch, branch, call);
    norm2_.forward(normed2, mid, branch, x, call);
  } else {
    attention_.forward(mid, normed1, call, x);
    norm2_.forward(normed2, mid, call);
  }
}

void Block::forward(const Call& call) const {
  attend(call);
  const Tensor &mid = call.at[mid_], &y = call.at[between_.y], &normed2 = call.at[normed2_];
  const bool split = call.split().size > 1;
  if (mlp_dropout_.active(call) || split) {
    const Tensor& branch = call.at[branch_];
    mlp_.forward(branch, normed2, call);
    if (mlp_dropout_.active(call)) mlp_dropout_.apply(branch, branch, call);
    add({.y = y, .a = mid, .b = branch}, call.stream);
  } else {
    mlp_.forward(y, normed2, call, mid);
  }
}

void Block::recompute(const Call& call) const {
  attend(call);
  mlp_.recompute(call.at[normed2_], call);
}

void Block::backward_input(const Call& call) const {
  const Call again = call.again();
  if (forward_again_) recompute(again);
  input_gradients(again);
}

void Block::backward_weight(const Call& call) const { weight_gradients(call.again()); }

void Block::input_gradients(const Call& call) const {
  const Tensor &x = call.at[between_.x], &mid = call.at[mid_], &dy = call.at[between_.dy], &d_mid = call.at[d_mid_];
  const Tensor &normed1 = call.at[normed1_again_], &normed2 = call.at[normed2_again_];
  if (norm_outputs_ == NormOutputs::before_backward) {
    norm1_.forward(normed1, x, call);
    norm2_.forward(normed2, mid, call);
  }
  const bool by_backward = norm_outputs_ == NormOutputs::by_norm_backward;
  const Tensor d_mlp = branch_gradient(mlp_dropout_, d_dropped2_, dy, call);
  if (mlp_dropout_.active(call)) mlp_dropout_.apply(d_mlp, dy, call);
  mlp_.backward_input(call.at[d_normed2_], d_mlp, normed2, call);
  norm2_.backward_input(d_mid, call.at[d_normed2_], mid, dy, call, by_backward ? normed2 : Tensor{});
  const Tensor d_attention = branch_gradient(attention_dropout_, d_dropped1_, d_mid, call);
  if (attention_dropout_.active(call)) attention_dropout_.apply(d_attention, d_mid, call);
  attention_.backward_input(call.at[d_normed1_], d_attention, normed1, call);
  norm1_.backward_input(call.at[between_.dx], call.at[d_normed1_], x, d_mid, call, by_backward ? normed1 : Tensor{});
}

void Block::weight_gradients(const Call& call) const {
  const Tensor d_mlp = branch_gradient(mlp_dropout_, d_dropped2_, call.at[between_.dy], call);
  const Tensor d_attention = branch_gradient(attention_dropout_, d_dropped1_, call.at[d_mid_], call);
  mlp_.backward_weight(d_mlp, call.at[normed2_again_], call);
  norm2_.backward_weight(call.at[d_normed2_], call.at[mid_], call);
  attention_.backward_weight(d_attention, call.at[normed1_again_], call);
  norm1_.backward_weight(call.at[d_normed1_], call.at[between_.x], call);
}

}  // namespace lockstep
