#include "kernels/embedding.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

// Of a table, only the rows that are looked up move: as many bytes as the result has. Which of them a part holds is not
// known here, so it counts as if it held all.
void embedding_forward(const EmbeddingForwardArgs& a, lockstep::Stream& stream) {
  count(
      stream,
      {.kind = KernelKind::embedding, .flops = a.positions ? a.y.elements() : 0, .read = a.positions ? a.y.bytes() : 0},
      {a.tokens, a.positions, a.y}, {a.y});
}

void embedding_backward(const EmbeddingBackwardArgs& a, lockstep::Stream& stream) {
  const std::int64_t rows = a.dy.elements() * size_of(a.dtable.dtype());
  count(stream,
        {.kind = KernelKind::embedding,
         .flops = a.dy.elements(),
         .read = rows,
         .written = rows + (a.accumulate ? 0 : a.dtable.bytes())},
        {a.dy, a.indices}, {});
}

}  // namespace lockstep::meta
