// Copies heads from one place to another: y = x, or y = y + x, whatever the strides and types of both.
//
// For what plain `cast` cannot do: strided tokens, such as those of a fused projection, a cache, or every other piece
// of a sequence; and sums of gradients over such tokens. Shapes: x, y (B, T, H, D), the last dim contiguous, all other
// strides free; of any two float types. With `accumulate` the sum is made in the accumulator type of the wider operand
// and rounded once, to y's type; without it x is rounded, to nearest even. With no tokens, or no heads, it does
// nothing. y may be x itself; else the two do not overlap (tensor/overlap.h), and no two elements of y share memory.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct CopyHeadsArgs {
  Tensor y;
  ConstTensor x;
  bool accumulate = false;
};

using CopyHeads = void(const CopyHeadsArgs&, Stream&);
CopyHeads copy_heads;
namespace cpu {
CopyHeads copy_heads;
}  // namespace cpu
namespace cuda {
CopyHeads copy_heads;
}  // namespace cuda
namespace meta {
CopyHeads copy_heads;
}  // namespace meta

}  // namespace lockstep
