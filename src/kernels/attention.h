// Attention with grouped key/value heads, tiled with an online softmax: memory is O(T), never T², but for the workspace
// of one backward on GPUs (attention_workspace, below).
//
// o = softmax(scale · q kᵀ) v, head by head; query head h reads key/value head h / (H/K).
// Shapes: q, o (B, T, H, D); k, v (B, S, K, D); gradients as what they belong to; lse (B, H, T) contiguous, the natural
// log of the sum of exponentials of the scaled scores, in the accumulator type. Token and head strides are free, so q,
// k and v may be views of one fused projection. With `causal`, query t sees keys up to t + S - T (the last query sees
// all; S >= T). D is at most 256. Sums are in the accumulator type; tiles that the mask hides are skipped. Order of
// sums: keys ascending for o and dq; query heads of the group, then queries ascending, for dk and dv. The same bits for
// any number of threads.
//
// On GPUs, in bf16 with heads of 64 or 128 on Hopper, backwards and all attention with documents are kernels of our own
// (cuda/hopper_attention.h), always deterministic; other attention in 16 bits, causal with S = T or to all keys, is
// cuDNN's where its sizes allow (cuda/cudnn_attention.h says when). Either is several times as fast as the plain
// kernels; its order of sums is its own, fixed unless `deterministic` is false; probabilities and the gradients of
// scores are rounded to the operands' type before they are multiplied.
//
// With a document mask a sample is several documents, one after another, and a query sees the keys of its own alone:
// from where its document begins. What no query of a tile sees is skipped, so documents cost what they would alone. One
// document that begins with the keys gives the bits of plain attention. Keys may be of other tokens than the queries (a
// ring's): a query that then sees none has o = 0, lse = -inf and dq = 0.
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

// Query t of sample b sees key s only where first_key + s >= starts[b, t]: starts (B, T) int32 are positions in the
// sample and never decrease along it, and none is beyond its own query's position.
struct DocumentMask {
  ConstTensor starts = {};  // none: every sample is one document
  std::int64_t first_key = 0;
  double pairs = -1;  // of query and key that see each other, in one head of a sample, as expected: counted on meta
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
  DocumentMask documents = {};
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
  bool deterministic = true;  // false: where that is faster, dq may differ in its last bits from run to run
  DocumentMask documents = {};
  Tensor workspace = {};  // fp32, flat; of attention_workspace() bytes or more; none where that is 0
};

// Bytes that attention_backward needs beside its operands on a device, known before anything runs, on any machine: 0 on
// the cpu, and on cuda wherever the plain kernels do the work. What a smaller workspace (or none) cannot hold is done
// by these too, more slowly.
//
// For the kernel of our own: about 4·B·H·T·D bytes, the sums of dq. (On another GPU than Hopper that is what cuDNN may
// have too, and what it does not fit, the plain kernels do.) What is reserved for cuDNN: 4·B·H·T bytes of sums and,
// with grouped heads, 4·B·H·S·D for what each query head adds to dk and dv. Not deterministic, 4·B·H·T·D more: dq in
// fp32. Deterministic, 2·B·H·T·S more, since the library then keeps the gradient of every score: quadratic in T. So its
// work is split into parts, samples first and then key/value heads, that need at most 1.125 GiB; but one key/value head
// with its H/K query heads is the smallest part, and where T is long that takes more. `deterministic = false` is the
// way out.
struct AttentionSizes {
  std::int64_t B, T, S, H, K, D;
  DType dtype;
  bool causal = true;
  bool dropout = false;
  bool deterministic = true;
  bool documents = false;  // with a document mask
};
std::int64_t attention_workspace(Device device, const AttentionSizes& sizes);

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
