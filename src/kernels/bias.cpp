#include "kernels/bias.h"

#include "kernels/operands.h"

namespace lockstep {

void bias_backward(const BiasBackwardArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.dy.dims() == 2, "bias_backward: dy is {}", a.dy.shape());
  Operands("bias_backward", stream)
      .floats("dy", a.dy)
      .have("dy", a.dy, a.dy.shape(), a.dy.dtype())
      .gradient("dbias", a.dbias, {a.dy.dim(1)}, a.dy.dtype());
  dispatch(cpu::bias_backward, cuda::bias_backward, meta::bias_backward, a, stream);
}

}  // namespace lockstep
