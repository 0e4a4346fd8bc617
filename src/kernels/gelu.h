// GELU in its tanh form: y = x/2 · (1 + tanh(sqrt(2/π) (x + 0.044715 x³))).
//
// Shapes: all (N, F). dx may be the same tensor as x or dy. Backward's y, when it is given, receives forward's y again,
// bit for bit, so that the activation need not be kept from forward; it may be dy or x where dx is not.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct GeluForwardArgs {
  Tensor y;
  ConstTensor x;
};

struct GeluBackwardArgs {
  Tensor dx;
  ConstTensor dy;
  ConstTensor x;
  Tensor y = {};
};

using GeluForward = void(const GeluForwardArgs&, Stream&);
using GeluBackward = void(const GeluBackwardArgs&, Stream&);
GeluForward gelu_forward;
GeluBackward gelu_backward;
namespace cpu {
GeluForward gelu_forward;
GeluBackward gelu_backward;
}  // namespace cpu
namespace cuda {
GeluForward gelu_forward;
GeluBackward gelu_backward;
}  // namespace cuda
namespace meta {
GeluForward gelu_forward;
GeluBackward gelu_backward;
}  // namespace meta

}  // namespace lockstep
