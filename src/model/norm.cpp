#include "model/norm.h"

#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"

namespace lockstep {

Norm::Norm(UnitLayout& layout, const Build& b, int unit, const std::string& name, bool holds)
    : kind_(b.spec.norm), eps_(b.spec.norm_eps), frozen_(b.frozen()) {
  const auto vector = [&](const char* what, Init init) {
    return layout.add({.shape = {b.spec.width},
                       .pieces = {b.on_all_ranks({name + what, {b.spec.width}}, b.how.split.sequence)},
                       .init = init,
                       .frozen = frozen_});
  };
  const auto statistic = [&](const char* what) {
    return b.add(SlotSpec{name + what,
                          accumulator_of(b.dtype),
                          {b.own_tokens()},
                          {unit, Phase::forward},
                          {unit, holds || frozen_ ? Phase::input : Phase::weight}}
                     .of(SlotRows::own));
  };
  weight_ = vector(".weight", Init::ones);
  rstd_ = statistic(".rstd");
  if (kind_ == NormKind::layer) {
    bias_ = vector(".bias", Init::zeros);
    mean_ = statistic(".mean");
  }
  if (!holds || frozen_) return;
  held_weight_ = HeldGradient(b, unit, name + ".weight", b.spec.width);
  if (bias_ >= 0) held_bias_ = HeldGradient(b, unit, name + ".bias", b.spec.width);
}

void Norm::forward(Tensor y, ConstTensor x, const Call& call, Tensor amax) const { forward(y, {}, x, {}, call, amax); }

void Norm::forward(Tensor y, Tensor sum, ConstTensor x, ConstTensor residual, const Call& call, Tensor amax) const {
  if (kind_ == NormKind::rms)
    rmsnorm_forward({.y = y,
                     .rstd = call.at[rstd_],
                     .x = x,
                     .weight = call.weight(weight_),
                     .eps = eps_,
                     .residual = residual,
                     .sum = sum,
                     .amax = amax},
                    call.stream);
  else
    layernorm_forward({.y = y,
                       .mean = call.at[mean_],
                       .rstd = call.at[rstd_],
                       .x = x,
                       .weight = call.weight(weight_),
                       .bias = call.weight(bias_),
                       .eps = eps_,
                       .residual = residual,
                       .sum = sum,
                       .amax = amax},
                      call.stream);
}

void Norm::backward_input(Tensor dx, ConstTensor dy, ConstTensor x, ConstTensor dresidual, const Call& call,
                          Tensor again, Tensor amax) const {
  if (held_weight_.is_held())
    sum_weights({held_weight_.sum(call), bias_ < 0 ? Tensor{} : held_bias_.sum(call)}, dy, x, false, call);
  if (kind_ == NormKind::rms)
    rmsnorm_backward_input({.dx = dx,
                            .dy = dy,
                            .x = x,
                            .weight = call.weight(weight_),
                            .rstd = call.at[rstd_],
                            .dresidual = dresidual,
                            .y = again,
                            .amax = amax},
                           call.stream);
  else
    layernorm_backward_input({.dx = dx,
                              .dy = dy,
                              .x = x,
                              .weight = call.weight(weight_),
                              .mean = call.at[mean_],
                              .rstd = call.at[rstd_],
                              .dresidual = dresidual,
                              .y = again,
                              .bias = call.weight(bias_),
                              .amax = amax},
                             call.stream);
}

void Norm::backward_weight(ConstTensor dy, ConstTensor x, const Call& call) const {
  if (frozen_) return;
  const WeightGradients gradients{call.gradient(weight_), bias_ < 0 ? Tensor{} : call.gradient(bias_)};
  if (!held_weight_.is_held()) return sum_weights(gradients, dy, x, call.accumulate, call);
  held_weight_.add_to(gradients.weight, call);
  if (bias_ >= 0) held_bias_.add_to(gradients.bias, call);
}

QuantizedNorm Norm::quantized(const Call& call) const {
  if (kind_ == NormKind::rms) return {.weight = call.weight(weight_), .rstd = call.at[rstd_]};
  return {.weight = call.weight(weight_), .bias = call.weight(bias_), .mean = call.at[mean_], .rstd = call.at[rstd_]};
}

void Norm::sum_weights(const WeightGradients& to, ConstTensor dy, ConstTensor x, bool accumulate,
                       const Call& call) const {
  if (kind_ == NormKind::rms)
    rmsnorm_backward_weight({.dweight = to.weight, .dy = dy, .x = x, .rstd = call.at[rstd_], .accumulate = accumulate},
                            call.stream);
  else
    layernorm_backward_weight({.dweight = to.weight,
                               .dbias = to.bias,
                               .dy = dy,
                               .x = x,
                               .mean = call.at[mean_],
                               .rstd = call.at[rstd_],
                               .accumulate = accumulate},
                              call.stream);
}

}  // namespace lockstep
