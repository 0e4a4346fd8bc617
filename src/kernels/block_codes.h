// Numbers in fewer bits, block by block: what a message carries in place of them ([sync] compress of a run).
//
// A code is 32-bit words, as many for every block of 256 elements; the last block may be of fewer elements, and its
// words are as many. So any run of whole blocks is a run of words:
//
//   form    words  what is kept of a block's numbers v
//   bf16      128  each, rounded to bf16
//   int8       65  scale = largest |v| / 127, a float; of each v / scale, rounded to the nearest integer, ties to even
//   onebit     10  the mean of those that are not negative and of those that are, two floats; of each its sign
//
// encode_blocks: v = x + residual (x alone where there is none) in the accumulator type A of x, element by element. The
// code is of v, and the residual becomes v less what the code decodes to: what is left out now is added to what is
// encoded next (error feedback). A number that is not finite makes the code decode to a NaN (in int8 and onebit its
// block, or those of its sign), and where that is so nothing is left over: the residual becomes 0.
//
// decode_blocks: y = the sum of what several codes decode to, joined as in tree_sum.h, in A, and rounded to y's type.
//
// Shapes: x, residual, y (n); code (coded_words(form, n)) int32. x and y of any float type, residual of A. Sums of
// onebit are in double, in eight lanes: element i in lane i mod 8, lanes added from the first to the last.
#pragma once
#include <cstdint>
#include <span>

#include "base/integers.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

enum class BlockForm : std::uint8_t { bf16, int8, onebit };

inline constexpr std::int64_t kCodedBlock = 256;  // elements
constexpr std::int64_t words_of_block(BlockForm form) {
  return form == BlockForm::bf16 ? 128 : form == BlockForm::int8 ? 65 : 10;
}
constexpr std::int64_t coded_words(BlockForm form, std::int64_t elements) {
  return ceil_div(elements, kCodedBlock) * words_of_block(form);
}

struct EncodeBlocksArgs {
  Tensor code;
  Tensor residual;  // none: what is left out is lost
  ConstTensor x;
  BlockForm form;
};

struct DecodeBlocksArgs {
  Tensor y;
  std::span<const ConstTensor> codes;   // at most kMostSummands
  std::span<const std::uint8_t> joins;  // one for each
  BlockForm form;
};

using EncodeBlocks = void(const EncodeBlocksArgs&, Stream&);
using DecodeBlocks = void(const DecodeBlocksArgs&, Stream&);
EncodeBlocks encode_blocks;
DecodeBlocks decode_blocks;
namespace cpu {
EncodeBlocks encode_blocks;
DecodeBlocks decode_blocks;
}  // namespace cpu
namespace cuda {
EncodeBlocks encode_blocks;
DecodeBlocks decode_blocks;
}  // namespace cuda
namespace meta {
EncodeBlocks encode_blocks;
DecodeBlocks decode_blocks;
}  // namespace meta

}  // namespace lockstep
