#include "kernels/rmsnorm.h"

#include "kernels/operands.h"

namespace lockstep {

namespace {
// The dims of x but its last: the shape of its row statistics.
Shape leading_dims(const char* op, const ConstTensor& x) {
  LOCKSTEP_CHECK(x.dims() == 2 || x.dims() == 3, "{}: x is {}, expected 2 or 3 dims", op, x.shape());
  return x.dims() == 2 ? Shape{x.dim(0)} : Shape{x.dim(0), x.dim(1)};
}
}  // namespace

void rmsnorm_forward(const RmsNormForwardArgs& a, Stream& stream) {
  const char* op = "rmsnorm_forward";
  const DType type = a.x.dtype();
  Operands(op, stream)
      .floats("x", a.x)
      .have("x", a.x, a.x.shape(), type)
      .may_have("y", a.y, a.x.shape(), type)
      .have_flat("rstd", a.rstd, leading_dims(op, a.x), accumulator_of(type))
      .have("weight", a.weight, {a.x.dim(-1)}, type)
      .may_have("residual", a.residual, a.x.shape(), type)
      .may_have("sum", a.sum, a.x.shape(), type)
      .may_have("amax", a.amax, {1}, DType::f32);
  LOCKSTEP_CHECK(a.residual.none() == a.sum.none(), "{}: residual and sum come together", op);
  LOCKSTEP_CHECK(a.y || a.amax, "{}: neither y nor amax", op);
  LOCKSTEP_CHECK(!a.amax || (type == DType::bf16 && a.x.dims() == 2), "{}: amax of {} {}", op, name_of(type),
                 a.x.shape());
  dispatch(cpu::rmsnorm_forward, cuda::rmsnorm_forward, meta::rmsnorm_forward, a, stream);
}

void rmsnorm_backward_input(const RmsNormBackwardInputArgs& a, Stream& stream) {
  const char* op = "rmsnorm_backward_input";
  const DType type = a.x.dtype();
  Operands(op, stream)
      .floats("x", a.x)
      .have("x", a.x, a.x.shape(), type)
      .have("dx", a.dx, a.x.shape(), type)
      .have("dy", a.dy, a.x.shape(), type)
      .have_flat("rstd", a.rstd, leading_dims(op, a.x), accumulator_of(type))
      .have("weight", a.weight, {a.x.dim(-1)}, type)
      .may_have("dresidual", a.dresidual, a.x.shape(), type)
      .may_have("y", a.y, a.x.shape(), type)
      .may_have("amax", a.amax, {1}, DType::f32);
  LOCKSTEP_CHECK(!a.amax || (type == DType::bf16 && a.x.dims() == 2), "{}: amax of {} {}", op, name_of(type),
                 a.x.shape());
  dispatch(cpu::rmsnorm_backward_input, cuda::rmsnorm_backward_input, meta::rmsnorm_backward_input, a, stream);
}

void rmsnorm_backward_weight(const RmsNormBackwardWeightArgs& a, Stream& stream) {
  const char* op = "rmsnorm_backward_weight";
  const DType type = a.x.dtype();
  Operands(op, stream)
      .floats("x", a.x)
      .have("x", a.x, a.x.shape(), type)
      .have("dy", a.dy, a.x.shape(), type)
      .have_flat("rstd", a.rstd, leading_dims(op, a.x), accumulator_of(type))
      .gradient("dweight", a.dweight, {a.x.dim(-1)}, type);
  dispatch(cpu::rmsnorm_backward_weight, cuda::rmsnorm_backward_weight, meta::rmsnorm_backward_weight, a, stream);
}

}  // namespace lockstep
