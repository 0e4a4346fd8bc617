#include "kernels/layernorm.h"

#include "kernels/operands.h"

namespace lockstep {

void layernorm_forward(const LayerNormForwardArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.x.dims() == 2, "layernorm_forward: x is {}", a.x.shape());
  const DType type = a.x.dtype();
  const std::int64_t n = a.x.dim(0), c = a.x.dim(1);
  Operands("layernorm_forward", stream)
      .floats("x", a.x)
      .have("x", a.x, {n, c}, type)
      .may_have("y", a.y, {n, c}, type)
      .have_flat("mean", a.mean, {n}, accumulator_of(type))
      .have_flat("rstd", a.rstd, {n}, accumulator_of(type))
      .have("weight", a.weight, {c}, type)
      .have("bias", a.bias, {c}, type)
      .may_have("residual", a.residual, {n, c}, type)
      .may_have("sum", a.sum, {n, c}, type)
      .may_have("amax", a.amax, {1}, DType::f32);
  LOCKSTEP_CHECK(a.residual.none() == a.sum.none(), "layernorm_forward: residual and sum come together");
  LOCKSTEP_CHECK(a.y || a.amax, "layernorm_forward: neither y nor amax");
  LOCKSTEP_CHECK(!a.amax || type == DType::bf16, "layernorm_forward: amax of {}", name_of(type));
  dispatch(cpu::layernorm_forward, cuda::layernorm_forward, meta::layernorm_forward, a, stream);
}

void layernorm_backward_input(const LayerNormBackwardInputArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.x.dims() == 2, "layernorm_backward_input: x is {}", a.x.shape());
  const DType type = a.x.dtype();
  const std::int64_t n = a.x.dim(0), c = a.x.dim(1);
  Operands("layernorm_backward_input", stream)
      .floats("x", a.x)
      .have("x", a.x, {n, c}, type)
      .have("dx", a.dx, {n, c}, type)
      .have("dy", a.dy, {n, c}, type)
      .have_flat("mean", a.mean, {n}, accumulator_of(type))
      .have_flat("rstd", a.rstd, {n}, accumulator_of(type))
      .have("weight", a.weight, {c}, type)
      .may_have("dresidual", a.dresidual, {n, c}, type)
      .may_have("y", a.y, {n, c}, type)
      .may_have("bias", a.bias, {c}, type)
      .may_have("amax", a.amax, {1}, DType::f32);
  LOCKSTEP_CHECK(a.y.none() || !a.bias.none(), "layernorm_backward_input: y needs the bias");
  LOCKSTEP_CHECK(!a.amax || type == DType::bf16, "layernorm_backward_input: amax of {}", name_of(type));
  dispatch(cpu::layernorm_backward_input, cuda::layernorm_backward_input, meta::layernorm_backward_input, a, stream);
}

void layernorm_backward_weight(const LayerNormBackwardWeightArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.x.dims() == 2, "layernorm_backward_weight: x is {}", a.x.shape());
  const DType type = a.x.dtype();
  const std::int64_t n = a.x.dim(0), c = a.x.dim(1);
  Operands("layernorm_backward_weight", stream)
      .floats("x", a.x)
      .have("x", a.x, {n, c}, type)
      .have("dy", a.dy, {n, c}, type)
      .have_flat("mean", a.mean, {n}, accumulator_of(type))
      .have_flat("rstd", a.rstd, {n}, accumulator_of(type))
      .gradient("dweight", a.dweight, {c}, type)
      .have("dbias", a.dbias, {c}, a.dweight.dtype());
  dispatch(cpu::layernorm_backward_weight, cuda::layernorm_backward_weight, meta::layernorm_backward_weight, a, stream);
}

}  // namespace lockstep
