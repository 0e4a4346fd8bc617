// Matrix product: c = op(a) · op(b) [+ bias] [+ addend], or c += the same.
//
// Shapes: op(a) (M, K), op(b) (K, N), c (M, N), bias (N); op(x) is x, or its transpose when asked. Rows may have any
// stride. a and b have one float type; c has it too or its accumulator type (float for 16-bit storage); sums are in the
// accumulator type whatever the storage. `bias` (of the type of a and b) is added to each row; `accumulate` adds the
// product to what c holds; `addend`, of c's type and shape, is a residual: it is added in the accumulator type before c
// is rounded, and excludes `accumulate`. c overlaps none of the others. The same bits for any number of threads.
//
// a and b may be FP8 instead (tensor/fp8.h), either kind but not both E5M2, each with its scale (kernels/quantize.h):
// the product is that of the values times both scales. c is then bf16 or float, a bias bf16; a is (M, K) and b (N, K)
// with transpose_b, rows of both contiguous along K, the only form that GPUs have; M, N and K are multiples of 16, and
// so are every stride and the addresses where a and b begin. `fast_sums` allows a GPU to keep fewer bits of the sums
// within an instruction than fp32 has. A GPU that accumulates such a product in bf16 may round it to bf16 first.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct MatmulArgs {
  Tensor c;
  ConstTensor a;
  ConstTensor b;
  bool transpose_a = false;
  bool transpose_b = false;
  ConstTensor bias = {};
  bool accumulate = false;
  ConstTensor addend = {};
  ConstTensor scale_a = {};  // (1) float; of FP8 operands, and only of those
  ConstTensor scale_b = {};
  bool fast_sums = false;
};

using Matmul = void(const MatmulArgs&, Stream&);
Matmul matmul;
namespace cpu {
Matmul matmul;
}
namespace cuda {
Matmul matmul;
}
namespace meta {
Matmul matmul;
}

}  // namespace lockstep
