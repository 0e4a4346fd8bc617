// Joins attention over some keys with attention of the same queries over other keys, into attention over all of them.
//
// With m = max(lse, part_lse), w = exp(lse - m), v = exp(part_lse - m):
//   o = (o w + part v) / (w + v),   lse = m + log(w + v).
// Shapes: o, part (B, T, H, D), token and head strides free, the last dim contiguous; lse, part_lse (B, H, T)
// contiguous, as attention_forward gives them. part is of any float type, o of the same or of its accumulator type
// (which keeps the sums of many parts from being rounded at each), lse and part_lse of the accumulator type. o and lse
// are read and written; neither overlaps its part.
//
// A side whose lse is -inf has seen no keys and counts for nothing, whatever its elements hold, NaN even; where neither
// has, o is 0 and lse -inf. `first` says that o and lse hold nothing yet: they are not read, and become part and
// part_lse. Any other NaN comes out of what depends on it; an lse of +inf makes NaN too.
//
// The order of parts is the caller's, and so are the last bits. The same bits for any number of threads.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct AttentionMergeArgs {
  Tensor o;
  Tensor lse;
  ConstTensor part;
  ConstTensor part_lse;
  bool first = false;
};

using AttentionMerge = void(const AttentionMergeArgs&, Stream&);
AttentionMerge attention_merge;
namespace cpu {
AttentionMerge attention_merge;
}  // namespace cpu
namespace cuda {
AttentionMerge attention_merge;
}  // namespace cuda
namespace meta {
AttentionMerge attention_merge;
}  // namespace meta

}  // namespace lockstep
