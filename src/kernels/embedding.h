// Embedding: y[b, t] = table[tokens[b, t]] (+ positions_table[positions[t]]), and the gradient of a table.
//
// Shapes: tokens (B, T) int32; y, dy (B, T, C); table (V, C); positions (T) or (B, T) int32 and their table (P, C) come
// together or not at all. Backward: dtable[indices] += dy, with indices (B, T), or (T) when every batch entry has the
// same (the positions). dtable is of dy's type or of its accumulator type, and many tokens may share a row: the
// contributions to a row are added in the order of (b, t), in the accumulator type, to what the row holds (without
// `accumulate`: to zero), and the sum is rounded once. On a GPU a row that more than 64 places share has them added in
// blocks of that many, and the blocks' sums in a fixed tree, so that no row holds up all others (a space, in text of
// bytes). An index outside its table throws ProgramError on the cpu: whoever reads data checks it before.
//
// With `part`, table (dtable) holds the rows [first, first + V) of a larger table, which is split over ranks. A token
// outside of these gives a row of zeros, to which its position's row is still added, and adds nothing in backward; no
// index is refused. What a row gets, and in which order, does not depend on how the table is split.
#pragma once
#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct EmbeddingForwardArgs {
  Tensor y;
  ConstTensor table;
  ConstTensor tokens;
  ConstTensor position_table = {};
  ConstTensor positions = {};
  bool part = false;
  std::int64_t first = 0;  // of a part
};

struct EmbeddingBackwardArgs {
  Tensor dtable;
  ConstTensor dy;
  ConstTensor indices;
  bool accumulate = false;
  bool part = false;
  std::int64_t first = 0;  // of a part
};

using EmbeddingForward = void(const EmbeddingForwardArgs&, Stream&);
using EmbeddingBackward = void(const EmbeddingBackwardArgs&, Stream&);
EmbeddingForward embedding_forward;
EmbeddingBackward embedding_backward;
namespace cpu {
EmbeddingForward embedding_forward;
EmbeddingBackward embedding_backward;
}  // namespace cpu
namespace cuda {
EmbeddingForward embedding_forward;
EmbeddingBackward embedding_backward;
}  // namespace cuda
namespace meta {
EmbeddingForward embedding_forward;
EmbeddingBackward embedding_backward;
}  // namespace meta

}  // namespace lockstep
