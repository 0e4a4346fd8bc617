// Rows of a matrix in fewer bits, each by itself: what a message between pipeline stages carries in place of
// activations
// ([sync] compress_activations of a run).
//
// A row's code is 32-bit words, as many for every row. It is of the row's own elements alone, so it is the same
// whatever rows are beside it: those of other samples, or a rank's part of the tokens.
//
//   bf16, int8, onebit  block_codes.h's codes of the row, without feedback; of the last block as many words as its r
//                       elements need: ⌈r/2⌉, 1 + ⌈r/4⌉, 2 + ⌈r/32⌉
//   largest k           the k elements of largest magnitude, of equal ones those that come first; a NaN is larger than
//                       everything. Their values in x's type, then their places in 16 bits, both in the order of
//                       places, each of the two filled up to a whole word with zeros
//
// decode_rows: y is what the codes decode to, in the accumulator type, rounded to y's type; elements that are not among
// the largest are zeros. A place outside of the row breaks the program, and is left out on a GPU: codes come from ranks
// of the same run.
//
// Shapes: x, y (N, C) without gaps, of one float type; code (N, row_words(form, C, type)) int32. 1 <= k <= C <= 65536.
#pragma once
#include "kernels/block_codes.h"

namespace lockstep {

struct RowCode {
  BlockForm blocks = BlockForm::int8;
  std::int64_t largest = 0;  // above 0: so many of each row, and no blocks
};

inline constexpr std::int64_t kMostPlaces = 65536;  // of a row whose largest are kept

constexpr std::int64_t row_words(const RowCode& form, std::int64_t C, DType dtype) {
  if (form.largest > 0) return ceil_div(form.largest * size_of(dtype), 4) + ceil_div(form.largest, 2);
  const std::int64_t blocks = ceil_div(C, kCodedBlock);
  return form.blocks == BlockForm::bf16   ? ceil_div(C, 2)
         : form.blocks == BlockForm::int8 ? blocks + ceil_div(C, 4)
                                          : 2 * blocks + ceil_div(C, 32);
}

struct EncodeRowsArgs {
  Tensor code;
  ConstTensor x;
  RowCode form;
};

struct DecodeRowsArgs {
  Tensor y;
  ConstTensor code;
  RowCode form;
};

using EncodeRows = void(const EncodeRowsArgs&, Stream&);
using DecodeRows = void(const DecodeRowsArgs&, Stream&);
EncodeRows encode_rows;
DecodeRows decode_rows;
namespace cpu {
EncodeRows encode_rows;
DecodeRows decode_rows;
}  // namespace cpu
namespace cuda {
EncodeRows encode_rows;
DecodeRows decode_rows;
// Loads every form of the kernels now (tree_sum.h, load_tree_sum).
void load_row_codes();
}  // namespace cuda
namespace meta {
EncodeRows encode_rows;
DecodeRows decode_rows;
}  // namespace meta

}  // namespace lockstep
