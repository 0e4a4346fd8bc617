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
  std::int64_t documents = 0;  // their tokens, about; 0: a sample is one
  std::int64_t first_key = 0;
  std::int64_t apart = 0;  // without the causal mask: positions between the last key and the first query

  // Where in the sample the document begins that query t of sample b is of.
  std::int64_t start(std::int64_t b, std::int64_t t) const;
  double score_scale() const;
  std::string label() const;
};

KernelCase make_attention_forward(DType dtype, const AttentionCase& spec);
KernelCase make_attention_backward(DType dtype, const AttentionCase& spec);

}  // namespace lockstep::tests
