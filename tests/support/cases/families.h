// The families of kernel cases; kernel_cases.h is their union.
//
// Sizes are chosen to be awkward: 1, primes, one beside each power of two that a tile might have, rows far longer than
// a tile.
#pragma once
#include <initializer_list>

#include "support/kernel_cases.h"

namespace lockstep::tests {

using Cases = std::vector<KernelCase>;

Cases matmul_cases(DType dtype);
Cases attention_cases(DType dtype);
Cases heads_cases(DType dtype);  // copy_heads, attention_merge
Cases rmsnorm_cases(DType dtype);
Cases layernorm_cases(DType dtype);
Cases activation_cases(DType dtype);   // swiglu, gelu
Cases elementwise_cases(DType dtype);  // add, cast, fill, bias_backward
Cases token_cases(DType dtype);        // embedding, rope
Cases cross_entropy_cases(DType dtype);
Cases split_cross_entropy_cases(DType dtype);
Cases random_cases(DType dtype);     // init_normal, dropout
Cases optimizer_cases(DType dtype);  // norm_sum, step_control, scale_loss, adamw, sgd
Cases block_hash_cases(DType dtype);
Cases compression_cases(DType dtype);  // encode_blocks, decode_blocks, select_top, add_at, encode_rows, decode_rows
Cases mask_cases(DType dtype);         // pack, unpack, keep, gather_rows, scatter_rows
Cases fp8_cases(DType dtype);          // amax, quantize and products of FP8, beside bf16
Cases tree_sum_cases(DType dtype);     // with the integers, among the floats of their size

// "7x13" for a name.
std::string label(std::initializer_list<std::int64_t> extents);

// The types a weight's gradient may have beside activations of this type, each once.
std::vector<DType> gradient_types(DType activations);
// How a weight's gradient is written, for a name: "_accumulate_to_f32".
std::string gradient_label(DType activations, DType gradient, bool accumulate);

// A gap for the last dim, odd so that rows start anywhere, or none.
inline std::array<std::int64_t, Shape::kMaxDims> row_gap(int dims, bool strided) {
  std::array<std::int64_t, Shape::kMaxDims> gaps{};
  if (strided) gaps[dims - 1] = 3;
  return gaps;
}

// The same with operands that begin off any alignment.
KernelCase unaligned(KernelCase made);

}  // namespace lockstep::tests
