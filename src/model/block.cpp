#include "model/block.h"

#include <fmt/format.h>

#include "kernels/elementwise.h"

namespace lockstep {

namespace {
// The gradient of a branch: that of the residual it joined, or what the branch's dropout left of it.
Tensor branch_gradient(const DropoutSite& site, Slot dropped, Tensor gradient, const Call& call) {
  return site.active(call) ? call.at[dropped] : gradient;
}
}  // namespace

Block::Block(const Build& b, int unit, std::int64_t layer, const Between& between)
    : Unit(fmt::format("block.{}", layer)),
      names_(block_names(b.spec, layer)),
      between_(between),
      norm1_(layout_, b.slots, unit, b.spec, b.dtype, names_.norm1, b.tokens()),
      d_normed1_(b.rows(unit, "d_normed1", b.spec.width, Phase::input, Phase::weight)),
      normed1_(b.rows(unit, "normed1", b.spec.width, Phase::forward, Phase::weight)),
      attention_(layout_, b, unit, names_),
      d_mid_(b.rows(unit, "d_mid", b.spec.width, Phase::input, Phase::weight)),
      mid_(b.rows(unit, "mid", b.spec.width, Phase::forward, Phase::weight)),
      norm2_(layout_, b.slots, unit, b.spec, b.dtype, names_.norm2, b.tokens()),
      d_normed2_(b.rows(unit, "d_normed2", b.spec.width, Phase::input, Phase::weight)),
      normed2_(b.rows(unit, "normed2", b.spec.width, Phase::forward, Phase::weight)),
      mlp_(layout_, b, unit, names_),
      branch_(b.rows(unit, "branch", b.spec.width, Phase::forward, Phase::forward)),
      attention_dropout_(b.spec.dropout, names_.out),
      mlp_dropout_(b.spec.dropout, names_.down) {
  const std::int64_t C = b.spec.width;
  if (b.spec.dropout > 0) {
    d_dropped1_ = b.rows(unit, "d_dropped1", C, Phase::input, Phase::weight);
    d_dropped2_ = b.rows(unit, "d_dropped2", C, Phase::input, Phase::weight);
  }
}

void Block::forward(const Call& call) const {
  const Tensor &x = call.at[between_.x], &branch = call.at[branch_], &mid = call.at[mid_];
  norm1_.forward(call.at[normed1_], x, call);
  attention_.forward(branch, call.at[normed1_], call);
  if (attention_dropout_.active(call)) attention_dropout_.apply(branch, branch, call);
  norm2_.forward(call.at[normed2_], mid, branch, x, call);
  mlp_.forward(branch, call.at[normed2_], call);
  if (mlp_dropout_.active(call)) mlp_dropout_.apply(branch, branch, call);
  add({.y = call.at[between_.y], .a = mid, .b = branch}, call.stream);
}

void Block::backward_input(const Call& call) const {
  const Tensor &dy = call.at[between_.dy], &d_mid = call.at[d_mid_];
  const Tensor d_mlp = branch_gradient(mlp_dropout_, d_dropped2_, dy, call);
  if (mlp_dropout_.active(call)) mlp_dropout_.apply(d_mlp, dy, call);
  mlp_.backward_input(call.at[d_normed2_], d_mlp, call);
  norm2_.backward_input(d_mid, call.at[d_normed2_], call.at[mid_], dy, call);
  const Tensor d_attention = branch_gradient(attention_dropout_, d_dropped1_, d_mid, call);
  if (attention_dropout_.active(call)) attention_dropout_.apply(d_attention, d_mid, call);
  attention_.backward_input(call.at[d_normed1_], d_attention, call);
  norm1_.backward_input(call.at[between_.dx], call.at[d_normed1_], call.at[between_.x], d_mid, call);
}

void Block::backward_weight(const Call& call) const {
  const Tensor d_mlp = branch_gradient(mlp_dropout_, d_dropped2_, call.at[between_.dy], call);
  const Tensor d_attention = branch_gradient(attention_dropout_, d_dropped1_, call.at[d_mid_], call);
  mlp_.backward_weight(d_mlp, call.at[normed2_], call);
  norm2_.backward_weight(call.at[d_normed2_], call.at[mid_], call);
  attention_.backward_weight(d_attention, call.at[normed1_], call);
  norm1_.backward_weight(call.at[d_normed1_], call.at[between_.x], call);
}

}  // namespace lockstep
