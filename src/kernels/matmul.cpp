#include "kernels/matmul.h"

#include "kernels/operands.h"

namespace lockstep {

void matmul(const MatmulArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.a.dims() == 2 && a.b.dims() == 2 && a.c.dims() == 2, "matmul: a is {}, b is {}, c is {}",
                 a.a.shape(), a.b.shape(), a.c.shape());
  const std::int64_t m = a.c.dim(0), n = a.c.dim(1), k = a.a.dim(a.transpose_a ? 0 : 1);
  const DType type = a.a.dtype();
  Operands("matmul", stream)
      .floats("a", a.a)
      .have("a", a.a, a.transpose_a ? Shape{k, m} : Shape{m, k}, type)
      .have("b", a.b, a.transpose_b ? Shape{n, k} : Shape{k, n}, type)
      .gradient("c", a.c, {m, n}, type)
      .may_have("bias", a.bias, {n}, type)
      .may_have("addend", a.addend, {m, n}, a.c.dtype());
  LOCKSTEP_CHECK(!a.addend || !a.accumulate, "matmul: an addend and what c holds already");
  dispatch(cpu::matmul, cuda::matmul, meta::matmul, a, stream);
}

}  // namespace lockstep
