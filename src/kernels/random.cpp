#include "kernels/random.h"

#include "kernels/operands.h"

namespace lockstep {

void init_normal(const InitNormalArgs& a, Stream& stream) {
  Operands("init_normal", stream).floats("x", a.x).have_flat("x", a.x, {a.x.elements()}, a.x.dtype());
  LOCKSTEP_CHECK(a.first >= 0, "init_normal: first element {}", a.first);
  LOCKSTEP_CHECK(a.row >= 0 && (a.row > 0 ? a.pitch >= a.row : a.pitch == 0), "init_normal: rows of {}, {} apart",
                 a.row, a.pitch);
  dispatch(cpu::init_normal, cuda::init_normal, meta::init_normal, a, stream);
}

void dropout(const DropoutArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.x.dims() == 2, "dropout: x is {}", a.x.shape());
  LOCKSTEP_CHECK(a.probability >= 0 && a.probability < 1, "dropout: probability {}", a.probability);
  Operands("dropout", stream)
      .floats("x", a.x)
      .have_flat("x", a.x, a.x.shape(), a.x.dtype())
      .have_flat("y", a.y, a.x.shape(), a.x.dtype())
      .have_flat("positions", a.positions, {a.positions.elements()}, DType::i32);
  LOCKSTEP_CHECK(a.first_row >= 0 && (a.x.dim(0) == 0 || a.positions.elements() > 0),
                 "dropout: {} rows from {} on, with {} positions", a.x.dim(0), a.first_row, a.positions.elements());
  dispatch(cpu::dropout, cuda::dropout, meta::dropout, a, stream);
}

}  // namespace lockstep
