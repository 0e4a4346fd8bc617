// LayerNorm: y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, row by row.
//
// Shapes: x, y, dy, dx (N, C); weight, bias (C); mean, rstd (N) in the accumulator type. The variance is the biased
// one. `residual`, `sum`, `dresidual` and `amax` as in rmsnorm.h; dx may be the same tensor as dy or dresidual.
// Backward-input's `y` as there too: forward's output again, for which it needs the bias.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct LayerNormForwardArgs {
  Tensor y;
  Tensor mean;
  Tensor rstd;
  ConstTensor x;
  ConstTensor weight;
  ConstTensor bias;
  double eps;
  ConstTensor residual = {};
  Tensor sum = {};
  Tensor amax = {};
};

struct LayerNormBackwardInputArgs {
  Tensor dx;
  ConstTensor dy;
  ConstTensor x;
  ConstTensor weight;
  ConstTensor mean;
  ConstTensor rstd;
  ConstTensor dresidual = {};
  Tensor y = {};
  ConstTensor bias = {};  // needed with y
  Tensor amax = {};
};

struct LayerNormBackwardWeightArgs {
  Tensor dweight;  // of x's type or its accumulator type
  Tensor dbias;    // likewise
  ConstTensor dy;
  ConstTensor x;
  ConstTensor mean;
  ConstTensor rstd;
  bool accumulate = false;
};

using LayerNormForward = void(const LayerNormForwardArgs&, Stream&);
using LayerNormBackwardInput = void(const LayerNormBackwardInputArgs&, Stream&);
using LayerNormBackwardWeight = void(const LayerNormBackwardWeightArgs&, Stream&);
LayerNormForward layernorm_forward;
LayerNormBackwardInput layernorm_backward_input;
LayerNormBackwardWeight layernorm_backward_weight;
namespace cpu {
LayerNormForward layernorm_forward;
LayerNormBackwardInput layernorm_backward_input;
LayerNormBackwardWeight layernorm_backward_weight;
}  // namespace cpu
namespace cuda {
LayerNormForward layernorm_forward;
LayerNormBackwardInput layernorm_backward_input;
LayerNormBackwardWeight layernorm_backward_weight;
}  // namespace cuda
namespace meta {
LayerNormForward layernorm_forward;
LayerNormBackwardInput layernorm_backward_input;
LayerNormBackwardWeight layernorm_backward_weight;
}  // namespace meta

}  // namespace lockstep
