#include "model/mlp.h"

#include <cmath>

#include "kernels/gelu.h"
#include "kernels/swiglu.h"

namespace lockstep {

namespace {
Linear::Options up_options(const Build& b, const BlockNames& names, const Part& width) {
  const ModelSpec& s = b.spec;
  Linear::Options o{.in = Part::whole(s.width),
                    .in_out = s.in_out_weights,
                    .init_std = s.init_std,
                    .pieces = {},
                    .bias = s.mlp_bias,
                    .inputs_measured = true,
                    .gradients_measured = s.mlp == MlpKind::swiglu,
                    .inputs_turned_again = Fp8Products::read_norms(b, s.width, Mlp::inner(b))};
  if (s.mlp == MlpKind::swiglu) o.pieces.push_back({names.gate, {width}});
  o.pieces.push_back({names.up, {width}});
  return o;
}
}  // namespace

std::int64_t Mlp::inner(const Build& b) {
  return (b.spec.mlp == MlpKind::swiglu ? 2 : 1) * b.how.split.part(b.spec.ffn_width).each;
}

bool Mlp::gives_fp8(const Build& b) {
  return b.spec.mlp == MlpKind::swiglu && !b.spec.mlp_bias && ends_in_fp8(b) &&
         Fp8Products::fit(b, b.spec.width, inner(b));
}

Mlp::Mlp(UnitLayout& layout, const Build& b, int unit, const BlockNames& names, Slot dy_amax)
    : kind_(b.spec.mlp),
      gives_fp8_(gives_fp8(b)),
      keeps_active_(b.recompute(unit).keeps_activation),
      width_(b.how.split.part(b.spec.ffn_width)),
      up_(layout, b, {unit, Half::second, "feed-forward's inputs"}, up_options(b, names, width_)),
      down_(layout, b, {unit, Half::second, "feed-forward's outputs"},
            {.in = width_,
             .in_out = b.spec.in_out_weights,
             .init_std = b.spec.init_std / std::sqrt(2.0 * static_cast<double>(b.spec.layers)),
             .pieces = {{names.down, {Part::whole(b.spec.width)}}},
             .bias = b.spec.mlp_bias,
             .inputs_measured = b.spec.mlp == MlpKind::swiglu,
             .gradients_largest = dy_amax,
             .inputs_turned_again = gives_fp8_ && !keeps_active_}) {
  const std::int64_t F = width_.each, width = inner(b);
  const BlockRecompute recompute = b.recompute(unit);
  const bool keeps_inner = recompute.keeps_projections;
  const bool reads_active = !down_.keeps_inputs() && down_.trains();  // in its backward
  // The second half of a block's forward, the first of its backward.
  const Phase read_last = gives_fp8_ ? Phase::input : b.read_last(up_.trains());
  const Half last_half = gives_fp8_ ? Half::first : Half::second;
  first_.inner = b.rows(unit, "inner", width, Phase::forward, keeps_inner ? read_last : Phase::forward, Half::second,
                        keeps_inner ? last_half : Half::second);
  first_.active = keeps_active_ && reads_active ? b.rows(unit, "active", F, Phase::forward, Phase::weight, Half::second)
                                                : b.rows_at_end(unit, "active", F);
  again_ = first_;
  if (!keeps_inner) again_.inner = b.rows(unit, "inner again", width, Phase::input, read_last, Half::first, last_half);
  if (!keeps_active_ && !gives_fp8_ && down_.trains())
    again_.active = b.rows(unit, "active again", F, Phase::input, Phase::weight);
  d_active_ = b.rows(unit, "d_active", F, Phase::input, Phase::input, Half::first, Half::first);
}

void Mlp::forward(Tensor y, const ProductInput& x, const Call& call, ConstTensor residual) const {
  const Tensor &inner = call.at[first_.inner], &active = call.at[first_.active];
  up_.forward(inner, x, call);
  if (kind_ == MlpKind::swiglu)
    swiglu_forward({.y = active, .gate_up = inner, .amax = down_.inputs_amax(call)}, call.stream);
  else
    gelu_forward({.y = active, .x = inner}, call.stream);
  down_.forward(y, active, call, residual);
}

void Mlp::backward_input(Tensor dx, ConstTensor dy, const ProductInput& x, const Call& call) const {
  if (dx.none() && !up_.trains() && again_.active == first_.active) return down_.backward_input({}, dy, call);
  const Tensor &inner = call.at[again_.inner], &d_active = call.at[d_active_];
  if (again_.inner != first_.inner)
    up_.forward_again(inner, x, call);
  else
    up_.turn_inputs(x, call);
  down_.backward_input(d_active, dy, call);
  activate_backward(inner, d_active, call);
  up_.backward_input(dx, gives_fp8_ ? ConstTensor{} : ConstTensor(inner), call);
}

void Mlp::activate_backward(const Tensor& inner, const Tensor& d_active, const Call& call) const {
  if (gives_fp8_) {
    swiglu_backward({.d_gate_up = {}, .dy = d_active, .gate_up = inner, .amax = up_.gradients_amax(call)}, call.stream);
    const Fp8Products::Gradients to = up_.begin_gradients(call);
    return swiglu_backward_fp8({.d8 = to.q,
                                .d8_turned = to.turned,
                                .scale = to.scale,
                                .dy = d_active,
                                .gate_up = inner,
                                .amax = to.amax,
                                .y8_turned = keeps_active_ ? Tensor{} : down_.inputs_turned(call),
                                .y_amax = keeps_active_ ? ConstTensor{} : ConstTensor(down_.inputs_amax(call))},
                               call.stream);
  }
  const Tensor active = again_.active == first_.active ? Tensor{} : call.at[again_.active];
  if (kind_ == MlpKind::swiglu)
    swiglu_backward(
        {.d_gate_up = inner, .dy = d_active, .gate_up = inner, .y = active, .amax = up_.gradients_amax(call)},
        call.stream);
  else
    gelu_backward({.dx = inner, .dy = d_active, .x = inner, .y = active}, call.stream);
}

void Mlp::backward_weight(ConstTensor dy, const ProductInput& x, const Call& call) const {
  RowLinear::Gathering gradients = down_.begin_weight(dy, call);
  ColumnLinear::Gathering inputs = up_.begin_weight(x, call);
  down_.backward_weight(dy, call.at[again_.active], gradients, call);
  up_.backward_weight(gives_fp8_ ? ConstTensor{} : ConstTensor(call.at[again_.inner]), x, inputs, call);
}

}  // namespace lockstep
