// The k elements of largest magnitude, and sums of such: what a message carries in place of all ([sync] compress).
//
// select_top: v = x + residual (x alone where there is none) in the accumulator type A of x. The k elements of largest
// |v| are chosen, of equal ones those that come first; a NaN is larger than everything. values holds them, rounded to
// x's type, and indices `first` + their places, both in the order of places. The residual becomes v less what was
// chosen: what is left out now is added to what is chosen from next (error feedback). What is not finite leaves nothing
// over: there the residual becomes 0.
//
// add_at: y[indices[i] - first] += values[i], from the first to the last, in A, each sum rounded to y's type. An index
// outside of y breaks the program, and adds nothing on a GPU: indices come from ranks of the same run.
//
// Shapes: x, residual, y (n); values, indices (k), 1 <= k <= n. x, y and values of one float type, residual of A,
// indices int32.
#pragma once
#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct SelectTopArgs {
  Tensor values;
  Tensor indices;
  Tensor residual;  // none: what is left out is lost
  ConstTensor x;
  std::int64_t first = 0;
};

struct AddAtArgs {
  Tensor y;
  ConstTensor indices;
  ConstTensor values;
  std::int64_t first = 0;
};

using SelectTop = void(const SelectTopArgs&, Stream&);
using AddAt = void(const AddAtArgs&, Stream&);
SelectTop select_top;
AddAt add_at;
namespace cpu {
SelectTop select_top;
AddAt add_at;
}  // namespace cpu
namespace cuda {
SelectTop select_top;
AddAt add_at;
}  // namespace cuda
namespace meta {
SelectTop select_top;
AddAt add_at;
}  // namespace meta

}  // namespace lockstep
