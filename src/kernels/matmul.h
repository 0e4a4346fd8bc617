// Matrix product: c = op(a) · op(b) [+ bias] [+ addend], or c += the same.
//
// Shapes: op(a) (M, K), op(b) (K, N), c (M, N), bias (N); op(x) is x, or its transpose when asked. Rows may have any
// stride. a and b have one float type; c has it too or its accumulator type (float for 16-bit storage); sums are in the
// accumulator type whatever the storage. `bias` (of the type of a and b) is added to each row; `accumulate` adds the
// product to what c holds; `addend`, of c's type and shape, is a residual: it is added in the accumulator type before c
// is rounded, and excludes `accumulate`. c overlaps none of the others. The same bits for any number of threads.
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
