#include "kernels/quantize.h"

#include "kernels/operands.h"

namespace lockstep {

void amax(const AmaxArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.x.dims() == 2, "amax: x is {}", a.x.shape());
  Operands("amax", stream).have("x", a.x, a.x.shape(), DType::bf16).have("amax", a.amax, {1}, DType::f32);
  dispatch(cpu::amax, cuda::amax, meta::amax, a, stream);
}

void quantize(const QuantizeArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.x.dims() == 2, "quantize: x is {}", a.x.shape());
  LOCKSTEP_CHECK(a.q || a.turned, "quantize: neither q nor turned");
  const std::int64_t rows = a.x.dim(0), columns = a.x.dim(1);
  const DType type = a.q ? a.q.dtype() : a.turned.dtype();
  LOCKSTEP_CHECK(is_fp8(type), "quantize: to {}", name_of(type));
  LOCKSTEP_CHECK(rows % 16 == 0 && columns % 16 == 0, "quantize: x is {}", a.x.shape());
  Operands("quantize", stream)
      .have("x", a.x, a.x.shape(), DType::bf16)
      .have("amax", a.amax, {1}, DType::f32)
      .have("scale", a.scale, {1}, DType::f32)
      .may_have("q", a.q, {rows, columns}, type)
      .may_have("turned", a.turned, {columns, rows}, type)
      .may_have("norm's weight", a.norm.weight, {columns}, DType::bf16)
      .may_have("norm's bias", a.norm.bias, {columns}, DType::bf16)
      .may_have("norm's mean", a.norm.mean, {rows}, DType::f32)
      .may_have("norm's rstd", a.norm.rstd, {rows}, DType::f32);
  LOCKSTEP_CHECK(a.norm.weight.none() == a.norm.rstd.none() && a.norm.bias.none() == a.norm.mean.none() &&
                     (!a.norm.mean || a.norm.rstd),
                 "quantize: parts of a norm");
  LOCKSTEP_CHECK(!a.norm.rstd || type == DType::f8e4m3, "quantize: what a norm gave, to {}", name_of(type));
  for (const Tensor& result : {a.q, a.turned})
    LOCKSTEP_CHECK(!result || (result.contiguous() && begins_at(16, result)),
                   "quantize: the result has gaps, or does not begin at a multiple of 16 bytes");
  dispatch(cpu::quantize, cuda::quantize, meta::quantize, a, stream);
}

}  // namespace lockstep
