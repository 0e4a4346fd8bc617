#include "kernels/gelu.h"

#include "kernels/operands.h"

namespace lockstep {

void gelu_forward(const GeluForwardArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.x.dims() == 2, "gelu_forward: x is {}", a.x.shape());
  Operands("gelu_forward", stream)
      .floats("x", a.x)
      .have("x", a.x, a.x.shape(), a.x.dtype())
      .have("y", a.y, a.x.shape(), a.x.dtype());
  dispatch(cpu::gelu_forward, cuda::gelu_forward, meta::gelu_forward, a, stream);
}

void gelu_backward(const GeluBackwardArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.x.dims() == 2, "gelu_backward: x is {}", a.x.shape());
  Operands("gelu_backward", stream)
      .floats("x", a.x)
      .have("x", a.x, a.x.shape(), a.x.dtype())
      .have("dy", a.dy, a.x.shape(), a.x.dtype())
      .have("dx", a.dx, a.x.shape(), a.x.dtype())
      .may_have("y", a.y, a.x.shape(), a.x.dtype());
  dispatch(cpu::gelu_backward, cuda::gelu_backward, meta::gelu_backward, a, stream);
}

}  // namespace lockstep
