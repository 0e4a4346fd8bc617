// SwiGLU: y = silu(gate) * up, where silu(g) = g / (1 + exp(-g)).
//
// Shapes: gate_up and its gradient (N, 2F), the gate in the first F columns; y, dy (N, F). d_gate_up may be gate_up
// itself. Backward's y, when it is given, receives silu(gate) * up again, equal bit for bit to forward's, so that the
// activation need not be kept from forward; it may be dy itself.
//
// amax, when it is given: (1) float, the largest magnitude of forward's y, or of backward's d_gate_up, as amax() of
// kernels/quantize.h finds it, without another pass; of bf16 only.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct SwigluForwardArgs {
  Tensor y;
  ConstTensor gate_up;
  Tensor amax = {};
};

struct SwigluBackwardArgs {
  Tensor d_gate_up;
  ConstTensor dy;
  ConstTensor gate_up;
  Tensor y = {};
  Tensor amax = {};
};

using SwigluForward = void(const SwigluForwardArgs&, Stream&);
using SwigluBackward = void(const SwigluBackwardArgs&, Stream&);
SwigluForward swiglu_forward;
SwigluBackward swiglu_backward;
namespace cpu {
SwigluForward swiglu_forward;
SwigluBackward swiglu_backward;
}  // namespace cpu
namespace cuda {
SwigluForward swiglu_forward;
SwigluBackward swiglu_backward;
}  // namespace cuda
namespace meta {
SwigluForward swiglu_forward;
SwigluBackward swiglu_backward;
}  // namespace meta

}  // namespace lockstep
