// Attention with grouped key/value heads, tiled with an online softmax: memory is O(T), never T².
//
// o = softmax(scale · q kᵀ) v, head by head; query head h reads key/value head h / (H/K).
// Shapes: q, o (B, T, H, D); k, v (B, S, K, D); gradients as what they belong to; lse (B, H, T) contiguous, the natural
// log of the sum of exponentials of the scaled scores, in the accumulator type. Token and head strides are free, so q,
// k and v may be views of one fused projection. With `causal`, query t sees keys up to t + S - T (the last query sees
// all; S >= T). D is at most 256. Sums are in the accumulator type; tiles that the mask hides are skipped. Order of
// sums: keys ascending for o and dq; query heads of the group, then queries ascending, for dk and dv. The same bits for
// any number of threads.
//
// Dropout on the probabilities is keyed on logical indices (sample, head, query position, key position), so that any
// slice of the batch, heads or sequence sees the mask the whole would see.
#pragma once
#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

inline constexpr std::int64_t kMaxHeadWidth = 256;

struct AttentionDropout {
  double probability = 0;  // of a weight being dropped; 0 = no dropout
  std::uint64_t key = 0;
  std::int64_t first_sample = 0;
  std::int64_t first_head = 0;
  std::int64_t first_query = 0;
  std::int64_t first_key = 0;
};

struct AttentionForwardArgs {
  Tensor o;
  Tensor lse;
  ConstTensor q;
  ConstTensor k;
  ConstTensor v;
  double scale;
  bool causal = true;
  AttentionDropout dropout = {};
};

struct AttentionBackwardArgs {
  Tensor dq;
  Tensor dk;
  Tensor dv;
  ConstTensor d_o;
  ConstTensor q;
  ConstTensor k;
  ConstTensor v;
  ConstTensor o;
  ConstTensor lse;
  double scale;
  bool causal = true;
  AttentionDropout dropout = {};
};

using AttentionForward = void(const AttentionForwardArgs&, Stream&);
using AttentionBackward = void(const AttentionBackwardArgs&, Stream&);
AttentionForward attention_forward;
AttentionBackward attention_backward;
namespace cpu {
AttentionForward attention_forward;
AttentionBackward attention_backward;
}  // namespace cpu
namespace cuda {
AttentionForward attention_forward;
AttentionBackward attention_backward;
}  // namespace cuda
namespace meta {
AttentionForward attention_forward;
AttentionBackward attention_backward;
}  // namespace meta

}  // namespace lockstep
