// How attention's cases are made; the speed table and the gradient table make their own with it.
#pragma once
#include "kernels/attention.h"
#include "support/cases/families.h"

namespace lockstep::tests {

enum class Layout {
  dense,    // each operand by itself, without gaps
  strided,  // each by itself, with gaps between tokens, heads and samples
  fused,    // q, k and v in one (B, T, H + 2K, D), and so their gradients
};

struct AttentionCase {
  std::int64_t batch, queries, keys, heads, key_heads, width;
  bool causal = true;
  Layout layout = Layout::dense;
  double scale = 0;   // 0: 1 / sqrt(D)
  double spread = 1;  // of the elements of q
  AttentionDropout dropout = {};

  double score_scale() const;
  std::string label() const;
};

KernelCase make_attention_forward(DType dtype, const AttentionCase& spec);
KernelCase make_attention_backward(DType dtype, const AttentionCase& spec);

}  // namespace lockstep::tests
