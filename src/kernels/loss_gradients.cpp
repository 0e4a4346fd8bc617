#include "kernels/loss_gradients.h"

#include "kernels/operands.h"

namespace lockstep {

namespace {

// Apart, or over the logits row by row. (The first rows decide: the others are placed as they are, or the strides
// differ.)
bool lies_well(const Tensor& dlogits, const ConstTensor& logits) {
  if (!dlogits.raw() || !logits.raw() || logits.elements() == 0) return true;
  const auto *out = static_cast<const char*>(dlogits.raw()), *in = static_cast<const char*>(logits.raw());
  const std::int64_t out_size = size_of(dlogits.dtype()), in_size = size_of(logits.dtype());
  if (out == in) return logits.dim(0) == 1 || dlogits.stride(0) * out_size == logits.stride(0) * in_size;
  return out + dlogits.dim(1) * out_size <= in || in + logits.dim(1) * in_size <= out;
}

}  // namespace

void check_loss_gradients(const char* op, const Tensor& dlogits, const ConstTensor& logits, const Stream& stream) {
  if (dlogits.none()) return;
  const DType type = logits.dtype(), d = dlogits.dtype();
  Operands(op, stream).have("dlogits", dlogits, logits.shape(), d);
  LOCKSTEP_CHECK(d == type || (type == DType::f32 && size_of(d) == 2), "{}: dlogits is {} beside logits of {}", op,
                 name_of(d), name_of(type));
  LOCKSTEP_CHECK(lies_well(dlogits, logits), "{}: dlogits overlaps logits, but not row by row", op);
}

void check_likeliest(const char* op, const Tensor& likeliest, std::int64_t rows, const Stream& stream) {
  if (!likeliest.none()) Operands(op, stream).have_flat("likeliest", likeliest, {rows}, DType::i32);
}

}  // namespace lockstep
