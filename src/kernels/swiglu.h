// SwiGLU: y = silu(gate) * up, where silu(g) = g / (1 + exp(-g)).
//
// Shapes: gate_up and its gradient (N, 2F), the gate in the first F columns; y, dy (N, F). d_gate_up may be gate_up
// itself. Backward's y, when it is given, receives silu(gate) * up again, equal bit for bit to forward's, so that the
// activation need not be kept from forward; it may be dy itself.
//
// amax, when it is given: (1) float, the largest magnitude of forward's y, or of backward's d_gate_up, as amax() of
// kernels/quantize.h finds it, without another pass; of bf16 only. With it backward's d_gate_up may be none.
//
// swiglu_backward_fp8: the same gradient, of which amax is known (backward without d_gate_up finds it), in both its FP8
// forms and nowhere in bf16: d8 (N, 2F), d8_turned (2F, N) and their scale (1), as quantize() of kernels/quantize.h
// makes them of d_gate_up. y8_turned (F, N), when it is given, receives what quantize() makes of forward's y, of which
// y_amax is known. N and F are multiples of 16, and what is read in bf16 begins, with each of its rows, at multiples of
// 16 bytes.
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

struct SwigluBackwardFp8Args {
  Tensor d8;
  Tensor d8_turned;
  Tensor scale;
  ConstTensor dy;
  ConstTensor gate_up;
  ConstTensor amax;
  Tensor y8_turned = {};  // of E4M3
  ConstTensor y_amax = {};
};

using SwigluForward = void(const SwigluForwardArgs&, Stream&);
using SwigluBackward = void(const SwigluBackwardArgs&, Stream&);
using SwigluBackwardFp8 = void(const SwigluBackwardFp8Args&, Stream&);
SwigluForward swiglu_forward;
SwigluBackward swiglu_backward;
SwigluBackwardFp8 swiglu_backward_fp8;
namespace cpu {
SwigluForward swiglu_forward;
SwigluBackward swiglu_backward;
SwigluBackwardFp8 swiglu_backward_fp8;
}  // namespace cpu
namespace cuda {
SwigluForward swiglu_forward;
SwigluBackward swiglu_backward;
SwigluBackwardFp8 swiglu_backward_fp8;
}  // namespace cuda
namespace meta {
SwigluForward swiglu_forward;
SwigluBackward swiglu_backward;
SwigluBackwardFp8 swiglu_backward_fp8;
}  // namespace meta

}  // namespace lockstep
