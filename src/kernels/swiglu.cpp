#include "kernels/swiglu.h"

#include "kernels/operands.h"

namespace lockstep {

void swiglu_forward(const SwigluForwardArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.y.dims() == 2, "swiglu_forward: y is {}", a.y.shape());
  Operands("swiglu_forward", stream)
      .floats("y", a.y)
      .have("y", a.y, a.y.shape(), a.y.dtype())
      .have("gate_up", a.gate_up, {a.y.dim(0), 2 * a.y.dim(1)}, a.y.dtype())
      .may_have("amax", a.amax, {1}, DType::f32);
  LOCKSTEP_CHECK(!a.amax || a.y.dtype() == DType::bf16, "swiglu_forward: amax of {}", name_of(a.y.dtype()));
  dispatch(cpu::swiglu_forward, cuda::swiglu_forward, meta::swiglu_forward, a, stream);
}

void swiglu_backward(const SwigluBackwardArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.dy.dims() == 2, "swiglu_backward: dy is {}", a.dy.shape());
  const Shape wide{a.dy.dim(0), 2 * a.dy.dim(1)};
  Operands("swiglu_backward", stream)
      .floats("dy", a.dy)
      .have("dy", a.dy, a.dy.shape(), a.dy.dtype())
      .have("gate_up", a.gate_up, wide, a.dy.dtype())
      .have("d_gate_up", a.d_gate_up, wide, a.dy.dtype())
      .may_have("y", a.y, a.dy.shape(), a.dy.dtype())
      .may_have("amax", a.amax, {1}, DType::f32);
  LOCKSTEP_CHECK(!a.amax || a.dy.dtype() == DType::bf16, "swiglu_backward: amax of {}", name_of(a.dy.dtype()));
  dispatch(cpu::swiglu_backward, cuda::swiglu_backward, meta::swiglu_backward, a, stream);
}

}  // namespace lockstep
