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
      .may_have("d_gate_up", a.d_gate_up, wide, a.dy.dtype())
      .may_have("y", a.y, a.dy.shape(), a.dy.dtype())
      .may_have("amax", a.amax, {1}, DType::f32);
  LOCKSTEP_CHECK(!a.amax || a.dy.dtype() == DType::bf16, "swiglu_backward: amax of {}", name_of(a.dy.dtype()));
  LOCKSTEP_CHECK(a.d_gate_up || a.amax, "swiglu_backward: neither d_gate_up nor amax");
  dispatch(cpu::swiglu_backward, cuda::swiglu_backward, meta::swiglu_backward, a, stream);
}

void swiglu_backward_fp8(const SwigluBackwardFp8Args& a, Stream& stream) {
  LOCKSTEP_CHECK(a.dy.dims() == 2, "swiglu_backward_fp8: dy is {}", a.dy.shape());
  const std::int64_t n = a.dy.dim(0), f = a.dy.dim(1);
  const DType type = a.d8.dtype();
  LOCKSTEP_CHECK(is_fp8(type) && n % 16 == 0 && f % 16 == 0, "swiglu_backward_fp8: dy is {}, d8 {}", a.dy.shape(),
                 name_of(type));
  Operands("swiglu_backward_fp8", stream)
      .have("dy", a.dy, {n, f}, DType::bf16)
      .have("gate_up", a.gate_up, {n, 2 * f}, DType::bf16)
      .have("amax", a.amax, {1}, DType::f32)
      .have("scale", a.scale, {1}, DType::f32)
      .have_flat("d8", a.d8, {n, 2 * f}, type)
      .have_flat("d8_turned", a.d8_turned, {2 * f, n}, type)
      .may_have("y8_turned", a.y8_turned, {f, n}, DType::f8e4m3)
      .may_have("y_amax", a.y_amax, {1}, DType::f32);
  LOCKSTEP_CHECK(a.y8_turned.none() == a.y_amax.none(), "swiglu_backward_fp8: y8_turned and y_amax come together");
  for (const Tensor& result : {a.d8, a.d8_turned, a.y8_turned})
    LOCKSTEP_CHECK(!result || (result.contiguous() && begins_at(16, result)),
                   "swiglu_backward_fp8: a result has gaps, or does not begin at a multiple of 16 bytes");
  for (const ConstTensor& given : {a.dy, a.gate_up})
    LOCKSTEP_CHECK(begins_at(16, given) && given.stride(0) % 8 == 0,
                   "swiglu_backward_fp8: rows do not begin at multiples of 16 bytes");
  dispatch(cpu::swiglu_backward_fp8, cuda::swiglu_backward_fp8, meta::swiglu_backward_fp8, a, stream);
}

}  // namespace lockstep
