#include "kernels/embedding.h"

#include "kernels/operands.h"

namespace lockstep {

namespace {
void check_part(const char* op, bool part, std::int64_t first) {
  LOCKSTEP_CHECK(first >= 0 && (part || first == 0), "{}: the first row is {} of {} table", op, first,
                 part ? "a part of a" : "a whole");
}
}  // namespace

void embedding_forward(const EmbeddingForwardArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.y.dims() == 3 && a.table.dims() == 2, "embedding_forward: y is {}, table is {}", a.y.shape(),
                 a.table.shape());
  check_part("embedding_forward", a.part, a.first);
  const std::int64_t c = a.y.dim(2);
  Operands operands("embedding_forward", stream);
  operands.floats("y", a.y)
      .have_flat("y", a.y, a.y.shape(), a.y.dtype())
      .have("table", a.table, {a.table.dim(0), c}, a.y.dtype())
      .have_flat("tokens", a.tokens, {a.y.dim(0), a.y.dim(1)}, DType::i32);
  LOCKSTEP_CHECK(a.positions.none() == a.position_table.none(),
                 "embedding_forward: positions and their table come together");
  if (a.positions)
    operands
        .have_flat("positions", a.positions,
                   a.positions.dims() == 1 ? Shape{a.y.dim(1)} : Shape{a.y.dim(0), a.y.dim(1)}, DType::i32)
        .have("position_table", a.position_table, {a.position_table.dim(0), c}, a.y.dtype());
  dispatch(cpu::embedding_forward, cuda::embedding_forward, meta::embedding_forward, a, stream);
}

void embedding_backward(const EmbeddingBackwardArgs& a, Stream& stream) {
  LOCKSTEP_CHECK(a.dy.dims() == 3 && a.dtable.dims() == 2, "embedding_backward: dy is {}, dtable is {}", a.dy.shape(),
                 a.dtable.shape());
  check_part("embedding_backward", a.part, a.first);
  const Shape each{a.dy.dim(0), a.dy.dim(1)}, shared{a.dy.dim(1)};
  Operands("embedding_backward", stream)
      .floats("dy", a.dy)
      .have_flat("dy", a.dy, a.dy.shape(), a.dy.dtype())
      .have_flat("indices", a.indices, a.indices.dims() == 1 ? shared : each, DType::i32)
      .gradient("dtable", a.dtable, {a.dtable.dim(0), a.dy.dim(2)}, a.dy.dtype());
  dispatch(cpu::embedding_backward, cuda::embedding_backward, meta::embedding_backward, a, stream);
}

}  // namespace lockstep
