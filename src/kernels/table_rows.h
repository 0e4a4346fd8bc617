// Some rows of a table, one after the other: copied out of it and back into their places.
//
// gather_rows:   y[i] = table[rows[i]]
// scatter_rows:  table[rows[i]] = x[i]; other rows stay as they are
//
// Each row is listed once. A row outside of the table breaks the program, and is left out on a GPU.
//
// Shapes: table (V, C), x and y (n, C), of one float type, without gaps; rows (n) int32.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct GatherRowsArgs {
  Tensor y;
  ConstTensor table;
  ConstTensor rows;
};

struct ScatterRowsArgs {
  Tensor table;
  ConstTensor x;
  ConstTensor rows;
};

using GatherRows = void(const GatherRowsArgs&, Stream&);
using ScatterRows = void(const ScatterRowsArgs&, Stream&);
GatherRows gather_rows;
ScatterRows scatter_rows;
namespace cpu {
GatherRows gather_rows;
ScatterRows scatter_rows;
}  // namespace cpu
namespace cuda {
GatherRows gather_rows;
ScatterRows scatter_rows;
}  // namespace cuda
namespace meta {
GatherRows gather_rows;
ScatterRows scatter_rows;
}  // namespace meta

}  // namespace lockstep
