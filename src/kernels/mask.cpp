#include "kernels/mask.h"

#include "kernels/operands.h"

namespace lockstep {

void pack(const PackArgs& a, Stream& stream) {
  const std::int64_t n = a.dense.elements(), k = a.packed.elements();
  Operands("pack", stream)
      .floats("dense", a.dense)
      .have_flat("dense", a.dense, {n}, a.dense.dtype())
      .have_flat("packed", a.packed, {k}, a.dense.dtype())
      .have_flat("mask", a.mask, {mask_words(n)}, DType::i64);
  dispatch(cpu::pack, cuda::pack, meta::pack, a, stream);
}

void unpack(const UnpackArgs& a, Stream& stream) {
  const std::int64_t n = a.dense.elements(), k = a.packed.elements();
  Operands("unpack", stream)
      .floats("dense", a.dense)
      .have_flat("dense", a.dense, {n}, a.dense.dtype())
      .have_flat("packed", a.packed, {k}, a.dense.dtype())
      .have_flat("mask", a.mask, {mask_words(n)}, DType::i64);
  dispatch(cpu::unpack, cuda::unpack, meta::unpack, a, stream);
}

void keep(const KeepArgs& a, Stream& stream) {
  const std::int64_t n = a.dense.elements();
  Operands("keep", stream)
      .floats("dense", a.dense)
      .have_flat("dense", a.dense, {n}, a.dense.dtype())
      .have_flat("mask", a.mask, {mask_words(n)}, DType::i64);
  dispatch(cpu::keep, cuda::keep, meta::keep, a, stream);
}

}  // namespace lockstep
