#include "kernels/heads.h"

#include "kernels/operands.h"
#include "tensor/overlap.h"

namespace lockstep {

void copy_heads(const CopyHeadsArgs& a, Stream& stream) {
  const char* op = "copy_heads";
  LOCKSTEP_CHECK(a.x.dims() == 4, "{}: x is {}, expected 4 dims", op, a.x.shape());
  Operands(op, stream)
      .floats("x", a.x)
      .floats("y", a.y)
      .have("x", a.x, a.x.shape(), a.x.dtype())
      .have("y", a.y, a.x.shape(), a.y.dtype());
  LOCKSTEP_CHECK(same_view(a.y, a.x) || apart(a.y, a.x), "{}: y overlaps x, and is not x itself", op);
  dispatch(cpu::copy_heads, cuda::copy_heads, meta::copy_heads, a, stream);
}

}  // namespace lockstep
