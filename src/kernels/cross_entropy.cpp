#include "kernels/cross_entropy.h"

#include "kernels/operands.h"

namespace lockstep {

namespace {

// Apart, or over the logits row by row. (First rows tell: others lie as they do, or the strides differ.)
bool lies_well(const Tensor& dlogits, const ConstTensor& logits) {
  if (!dlogits.raw() || !logits.raw() || logits.elements() == 0) return true;
  const auto *out = static_cast<const char*>(dlogits.raw()), *in = static_cast<const char*>(logits.raw());
  const std::int64_t out_size = size_of(dlogits.dtype()), in_size = size_of(logits.dtype());
  if (out == in) return logits.dim(0) == 1 || dlogits.stride(0) * out_size == logits.stride(0) * in_size;
  return out + dlogits.dim(1) * out_size <= in || in + logits.dim(1) * in_size <= out;
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.logits.dims() == 2, "cross_entropy: logits are {}", a.logits.shape());
  const DType type = a.logits.dtype();
  const std::int64_t n = a.logits.dim(0);
  Operands("cross_entropy", stream)
      .floats("logits", a.logits)
      .have("logits", a.logits, a.logits.shape(), type)
      .have_flat("targets", a.targets, {n}, DType::i32)
      .have_flat("losses", a.losses, {n}, accumulator_of(type))
      .have_flat("scale", a.scale, {1}, accumulator_of(type))
      .may_have("dlogits", a.dlogits, a.logits.shape(), a.dlogits.dtype());
  const DType d = a.dlogits.dtype();
  LOCKSTEP_CHECK(a.dlogits.none() || d == type || (type == DType::f32 && size_of(d) == 2),
                 "cross_entropy: dlogits is {} beside logits of {}", name_of(d), name_of(type));
  LOCKSTEP_CHECK(lies_well(a.dlogits, a.logits), "cross_entropy: dlogits overlaps logits, but not row by row");
  dispatch(cpu::cross_entropy, cuda::cross_entropy, meta::cross_entropy, a, stream);
}

}  // namespace lockstep
