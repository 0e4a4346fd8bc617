// Random numbers in tensors, each a pure function of a key and a logical index (base/philox.h).
//
// init_normal: element i of x (flat, any float type) is the (first + i)-th normal number of the key's sequence, times
// std; a shard of a parameter passes where it begins. With `row`, x holds rows of that many elements out of a larger
// matrix of rows `pitch` apart: element i is number first + (i / row)·pitch + i % row. The last row may be cut short.
//
// dropout: y = x / (1 - p) where kept, 0 where dropped, for x, y (N, C): a run of the (B·T) rows of a batch, row n
// being row r = first_row + n of them. positions (T) int32. The mask of an element in column c is keyed on sample
// first_sample
// + r / T, positions[r % T] and c, so that any slice of batch or sequence, and any run of rows, sees what the whole
// would see. y may be x. Its backward is the same op on the gradient.
#pragma once
#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct InitNormalArgs {
  Tensor x;
  std::uint64_t key;
  std::int64_t first = 0;
  double std = 1;
  std::int64_t row = 0;  // 0: one run of numbers
  std::int64_t pitch = 0;
};

struct DropoutArgs {
  Tensor y;
  ConstTensor x;
  ConstTensor positions;
  double probability;  // of an element being dropped, in [0, 1)
  std::uint64_t key;
  std::int64_t first_sample = 0;
  std::int64_t first_row = 0;
};

using InitNormal = void(const InitNormalArgs&, Stream&);
using Dropout = void(const DropoutArgs&, Stream&);
InitNormal init_normal;
Dropout dropout;
namespace cpu {
InitNormal init_normal;
Dropout dropout;
}  // namespace cpu
namespace cuda {
InitNormal init_normal;
Dropout dropout;
}  // namespace cuda
namespace meta {
InitNormal init_normal;
Dropout dropout;
}  // namespace meta

}  // namespace lockstep
