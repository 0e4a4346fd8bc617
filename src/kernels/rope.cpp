#include "kernels/rope.h"

#include "kernels/operands.h"

namespace lockstep {

void rope_table(const RopeTableArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.cos.dims() == 2, "rope_table: cos is {}", a.cos.shape());
  LOCKSTEP_CHECK(a.cos.dtype() == accumulator_of(a.cos.dtype()), "rope_table: cos is {}", name_of(a.cos.dtype()));
  Operands("rope_table", stream)
      .floats("cos", a.cos)
      .have_flat("cos", a.cos, a.cos.shape(), a.cos.dtype())
      .have_flat("sin", a.sin, a.cos.shape(), a.cos.dtype())
      .have_flat("positions", a.positions, {a.cos.dim(0)}, DType::i32);
  dispatch(cpu::rope_table, cuda::rope_table, meta::rope_table, a, stream);
}

void rope(const RopeArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.x.dims() == 4 && a.x.dim(3) % 2 == 0, "rope: x is {}, expected 4 dims and an even last one",
                 a.x.shape());
  LOCKSTEP_CHECK(a.positions.none() || a.cos.dims() == 2, "rope: cos is {}", a.cos.shape());
  const Shape table{a.positions ? a.cos.dim(0) : a.x.dim(1), a.x.dim(3) / 2};
  Operands("rope", stream)
      .floats("x", a.x)
      .have("x", a.x, a.x.shape(), a.x.dtype())
      .may_have("positions", a.positions, {a.x.dim(0), a.x.dim(1)}, DType::i32)
      .have_flat("cos", a.cos, table, accumulator_of(a.x.dtype()))
      .have_flat("sin", a.sin, table, accumulator_of(a.x.dtype()))
      .may_have("amax", a.amax, {1}, DType::f32);
  LOCKSTEP_CHECK(!a.amax || a.x.dtype() == DType::bf16, "rope: amax of {}", name_of(a.x.dtype()));
  dispatch(cpu::rope, cuda::rope, meta::rope, a, stream);
}

}  // namespace lockstep
