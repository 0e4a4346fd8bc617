#include "model/mlp.h"

#include <cmath>

#include "kernels/gelu.h"
#include "kernels/swiglu.h"

namespace lockstep {

namespace {
Linear::Options up_options(const ModelSpec& s, const BlockNames& names, const Part& width) {
  Linear::Options o{.in = Part::whole(s.width),
                    .in_out = s.in_out_weights,
                    .init_std = s.init_std,
                    .pieces = {},
                    .bias = s.mlp_bias,
                    .inputs_measured = true,
                    .gradients_measured = s.mlp == MlpKind::swiglu};
  if (s.mlp == MlpKind::swiglu) o.pieces.push_back({names.gate, {width}});
  o.pieces.push_back({names.up, {width}});
  return o;
}
}  // namespace

std::int64_t Mlp::inner(const Build& b) {
  return (b.spec.mlp == MlpKind::swiglu ? 2 : 1) * b.how.split.part(b.spec.ffn_width).each;
}

Mlp::Mlp(UnitLayout& layout, const Build& b, int unit, const BlockNames& names, Slot dy_amax)
    : kind_(b.spec.mlp),
      width_(b.how.split.part(b.spec.ffn_width)),
      up_(layout, b, {unit, Half::second, "feed-forward's inputs"}, up_options(b.spec, names, width_)),
      down_(layout, b, {unit, Half::second, "feed-forward's outputs"},
            {.in = width_,
             .in_out = b.spec.in_out_weights,
             .init_std = b.spec.init_std / std::sqrt(2.0 * static_cast<double>(b.spec.layers)),
             .pieces = {{names.down, {Part::whole(b.spec.width)}}},
             .bias = b.spec.mlp_bias,
             .inputs_measured = b.spec.mlp == MlpKind::swiglu,
             .gradients_largest = dy_amax}) {
  const std::int64_t F = width_.each, width = inner(b);
  const BlockRecompute recompute = b.recompute(unit);
  const bool keeps_inner = recompute.keeps_projections, keeps_active = recompute.keeps_activation;
  const bool reads_active = !down_.keeps_inputs() && down_.trains();  // in its backward
  // The second half of a block's forward, the first of its backward.
  first_.inner = b.rows(unit, "inner", width, Phase::forward, keeps_inner ? b.read_last(up_.trains()) : Phase::forward,
                        Half::second);
  first_.active = keeps_active && reads_active ? b.rows(unit, "active", F, Phase::forward, Phase::weight, Half::second)
                                               : b.rows_at_end(unit, "active", F);
  again_ = first_;
  if (!keeps_inner) again_.inner = b.rows(unit, "inner again", width, Phase::input, b.read_last(up_.trains()));
  if (!keeps_active && down_.trains()) again_.active = b.rows(unit, "active again", F, Phase::input, Phase::weight);
  d_active_ = b.rows(unit, "d_active", F, Phase::input, Phase::input, Half::first, Half::first);
}

void Mlp::forward(Tensor y, ConstTensor x, const Call& call, ConstTensor residual) const {
  const Tensor &inner = call.at[first_.inner], &active = call.at[first_.active];
  up_.forward(inner, x, call);
  if (kind_ == MlpKind::swiglu)
    swiglu_forward({.y = active, .gate_up = inner, .amax = down_.inputs_amax(call)}, call.stream);
  else
    gelu_forward({.y = active, .x = inner}, call.stream);
  down_.forward(y, active, call, residual);
}

void Mlp::backward_input(Tensor dx, ConstTensor dy, ConstTensor x, const Call& call) const {
  if (dx.none() && !up_.trains() && again_.active == first_.active) return down_.backward_input({}, dy, call);
  const Tensor &inner = call.at[again_.inner], &d_active = call.at[d_active_];
  const Tensor active = again_.active == first_.active ? Tensor{} : call.at[again_.active];
  if (again_.inner != first_.inner) up_.forward_again(inner, x, call);
  down_.backward_input(d_active, dy, call);
  if (kind_ == MlpKind::swiglu)
    swiglu_backward(
        {.d_gate_up = inner, .dy = d_active, .gate_up = inner, .y = active, .amax = up_.gradients_amax(call)},
        call.stream);
  else
    gelu_backward({.dx = inner, .dy = d_active, .x = inner, .y = active}, call.stream);
  up_.backward_input(dx, inner, call);
}

void Mlp::backward_weight(ConstTensor dy, ConstTensor x, const Call& call) const {
  RowLinear::Gathering gradients = down_.begin_weight(dy, call);
  ColumnLinear::Gathering inputs = up_.begin_weight(x, call);
  down_.backward_weight(dy, call.at[again_.active], gradients, call);
  up_.backward_weight(call.at[again_.inner], x, inputs, call);
}

}  // namespace lockstep
