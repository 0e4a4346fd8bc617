#include "kernels/top_k.h"

#include <limits>

#include "kernels/operands.h"

namespace lockstep {

void select_top(const SelectTopArgs& a, Stream& stream) {
  const std::int64_t n = a.x.elements(), k = a.values.elements();
  Operands("select_top", stream)
      .floats("x", a.x)
      .have_flat("x", a.x, {n}, a.x.dtype())
      .have_flat("values", a.values, {k}, a.x.dtype())
      .have_flat("indices", a.indices, {k}, DType::i32)
      .may_have("residual", a.residual, {n}, accumulator_of(a.x.dtype()));
  LOCKSTEP_CHECK(k >= 1 && k <= n, "select_top: values: {} of the {} elements of x", k, n);
  LOCKSTEP_CHECK(a.first >= 0 && a.first + n <= std::numeric_limits<std::int32_t>::max(),
                 "select_top: places up to {} in 32 bits", a.first + n);
  dispatch(cpu::select_top, cuda::select_top, meta::select_top, a, stream);
}

void add_at(const AddAtArgs& a, Stream& stream) {
  const std::int64_t k = a.values.elements();
  Operands("add_at", stream)
      .floats("y", a.y)
      .have_flat("y", a.y, {a.y.elements()}, a.y.dtype())
      .have_flat("values", a.values, {k}, a.y.dtype())
      .have_flat("indices", a.indices, {k}, DType::i32);
  dispatch(cpu::add_at, cuda::add_at, meta::add_at, a, stream);
}

}  // namespace lockstep
