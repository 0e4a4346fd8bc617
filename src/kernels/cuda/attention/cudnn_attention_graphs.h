// Attention, causal or not, as the two graphs of operations that cuDNN recognises and fuses into one kernel each.
//
// The library knows attention by the pattern: these operations in this arrangement with these types, or it has no
// kernel. So nothing here may be simplified for being redundant (a product with 1.0, indices made from the scores).
// Scores and probabilities are written as (B, H, T, S), but are inner tensors that never exist as a whole.
#pragma once
#include <compare>

#include "kernels/cuda/attention/cudnn_attention_nodes.h"

namespace lockstep::cuda {

// The steps, in elements, of an operand (B, T, heads, D) whose last dim is dense.
struct HeadStrides {
  std::int64_t batch, head, token;
  auto operator<=>(const HeadStrides&) const = default;
};

// All that a plan depends on. q, o, d_o and dq have H heads, the others K.
struct AttentionForm {
  bool backward;
  bool deterministic;  // backward alone
  bool causal;
  cudnnDataType_t type;
  std::int64_t B, T, S, H, K, D;
  std::int64_t statistics_alignment;  // of the addresses of lse, in bytes
  HeadStrides q, k, v, o;
  HeadStrides d_o = {}, dq = {}, dk = {}, dv = {};  // backward alone
  auto operator<=>(const AttentionForm&) const = default;
};

// The ids under which a run binds addresses.
enum class AttentionOperand : std::int64_t {
  q = 1,
  k,
  v,
  o,
  lse,             // fp32 (B, H, T)
  scale,           // scalars
  minus_infinity,  // causal alone
  one,             // backward alone, as all below
  d_o,
  dq,
  dk,
  dv,
  delta,        // fp32 (B, H, T), written: the sums over D of o times d_o
  accumulator,  // fp32 (B, H, T, D), written; not in the deterministic graph
};

CudnnGraph attention_forward_graph(const AttentionForm& form);
// Deterministic: dq is written by the product that makes it. Otherwise many blocks add to an fp32 accumulator, whose
// order of sums is not fixed; dk and dv still repeat bit for bit.
CudnnGraph attention_backward_graph(const AttentionForm& form);

}  // namespace lockstep::cuda
