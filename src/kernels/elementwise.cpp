#include "kernels/elementwise.h"

#include "kernels/operands.h"

namespace lockstep {

void add(const AddArgs& a, Stream& stream) {
  Operands("add", stream)
      .floats("y", a.y)
      .have_flat("y", a.y, a.y.shape(), a.y.dtype())
      .have_flat("a", a.a, a.y.shape(), a.y.dtype())
      .have_flat("b", a.b, a.y.shape(), a.y.dtype());
  dispatch(cpu::add, cuda::add, meta::add, a, stream);
}

void cast(const CastArgs& a, Stream& stream) {
  Operands("cast", stream)
      .floats("y", a.y)
      .floats("x", a.x)
      .have_flat("y", a.y, a.y.shape(), a.y.dtype())
      .have_flat("x", a.x, a.y.shape(), a.x.dtype());
  dispatch(cpu::cast, cuda::cast, meta::cast, a, stream);
}

void fill(const FillArgs& a, Stream& stream) {
  Operands("fill", stream).floats("y", a.y).have_flat("y", a.y, a.y.shape(), a.y.dtype());
  dispatch(cpu::fill, cuda::fill, meta::fill, a, stream);
}

}  // namespace lockstep
