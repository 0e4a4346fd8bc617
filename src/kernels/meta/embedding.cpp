#include "kernels/embedding.h"

#include "kernels/meta/count.h"

namespace lockstep::meta {

// Of a table, only the rows that are looked up move: as many bytes as the result has. Which of them a part holds is not
// known here, so it counts as if it held all.
void embedding_forward(const EmbeddingForwardArgs& a, lockstep::Stream& stream) {
  Work& work = count(stream, a.positions ? a.y.elements() : 0, {a.tokens, a.positions, a.y}, {a.y});
  if (a.positions) work.bytes_read += a.y.bytes();
}

void embedding_backward(const EmbeddingBackwardArgs& a, lockstep::Stream& stream) {
  Work& work = count(stream, a.dy.elements(), {a.dy, a.indices}, {});
  const std::int64_t rows = a.dy.elements() * size_of(a.dtable.dtype());
  work.bytes_read += rows;
  work.bytes_written += rows + (a.accumulate ? 0 : a.dtable.bytes());
}

}  // namespace lockstep::meta
