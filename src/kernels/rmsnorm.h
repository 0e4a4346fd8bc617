// RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight, row by row.
//
// Shapes: x, y, dy, dx (N, C), or (N, M, C) for N·M rows (the heads of a fused projection); weight (C); rstd the
// leading dims of x, in the accumulator type. Forward with a `residual` of x's shape first forms sum = x + residual
// (sum of x's type, must be given) and normalises that; backward then takes `sum` as its x. Backward-input adds
// `dresidual` when it is given, so that a residual branch joins in the same pass; dx may be the same tensor as dy or
// dresidual. Its `y`, when it is given, receives the norm's output again, equal bit for bit to forward's, so that it
// need not be kept from forward: x is read here anyway, so this costs one write instead of a pass. y overlaps no other
// operand. Sums over a row are in the accumulator type.
//
// amax, when it is given: (1) float, the largest magnitude of forward's y, or of backward-input's dx, as amax() of
// kernels/quantize.h finds it, without another pass; of bf16 and of x (N, C) only. With it forward's y may be none:
// nobody reads it but quantize(), which makes it again.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct RmsNormForwardArgs {
  Tensor y;
  Tensor rstd;
  ConstTensor x;
  ConstTensor weight;
  double eps;
  ConstTensor residual = {};
  Tensor sum = {};
  Tensor amax = {};
};

struct RmsNormBackwardInputArgs {
  Tensor dx;
  ConstTensor dy;
  ConstTensor x;
  ConstTensor weight;
  ConstTensor rstd;
  ConstTensor dresidual = {};
  Tensor y = {};
  Tensor amax = {};
};

struct RmsNormBackwardWeightArgs {
  Tensor dweight;  // of x's type or its accumulator type
  ConstTensor dy;
  ConstTensor x;
  ConstTensor rstd;
  bool accumulate = false;  // add to dweight, or be its first writer
};

using RmsNormForward = void(const RmsNormForwardArgs&, Stream&);
using RmsNormBackwardInput = void(const RmsNormBackwardInputArgs&, Stream&);
using RmsNormBackwardWeight = void(const RmsNormBackwardWeightArgs&, Stream&);
RmsNormForward rmsnorm_forward;
RmsNormBackwardInput rmsnorm_backward_input;
RmsNormBackwardWeight rmsnorm_backward_weight;
namespace cpu {
RmsNormForward rmsnorm_forward;
RmsNormBackwardInput rmsnorm_backward_input;
RmsNormBackwardWeight rmsnorm_backward_weight;
}  // namespace cpu
namespace cuda {
RmsNormForward rmsnorm_forward;
RmsNormBackwardInput rmsnorm_backward_input;
RmsNormBackwardWeight rmsnorm_backward_weight;
}  // namespace cuda
namespace meta {
RmsNormForward rmsnorm_forward;
RmsNormBackwardInput rmsnorm_backward_input;
RmsNormBackwardWeight rmsnorm_backward_weight;
}  // namespace meta

}  // namespace lockstep
