#include "kernels/random.h"

#include "kernels/operands.h"

namespace lockstep {

void init_normal(const InitNormalArgs& a, Stream& stream) {
  Operands("init_normal", stream).floats("x", a.x).have_flat("x", a.x, {a.x.elements()}, a.x.dtype());
  LOCKSTEP_CHECK(a.first >= 0, "init_normal: first element {}", a.first);
  dispatch(cpu::init_normal, cuda::init_normal, meta::init_normal, a, stream);
}

void dropout(const DropoutArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.x.dims() == 3, "dropout: x is {}", a.x.shape());
  LOCKSTEP_CHECK(a.probability >= 0 && a.probability < 1, "dropout: probability {}", a.probability);
  Operands("dropout", stream)
      .floats("x", a.x)
      .have_flat("x", a.x, a.x.shape(), a.x.dtype())
      .have_flat("y", a.y, a.x.shape(), a.x.dtype())
      .have_flat("positions", a.positions, {a.x.dim(1)}, DType::i32);
  dispatch(cpu::dropout, cuda::dropout, meta::dropout, a, stream);
}

}  // namespace lockstep
