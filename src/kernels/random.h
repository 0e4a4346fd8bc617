// Random numbers in tensors, each a pure function of a key and a logical index (base/philox.h).
//
// init_normal: element i of x (flat, any float type) is the (first + i)-th normal number of the key's sequence, times
// std; a shard of a parameter passes where it begins. dropout: y = x / (1 - p) where kept, 0 where dropped, for x, y
// (B, T, C), the mask of element (b, t, c) keyed on sample first_sample + b, positions[t] (int32) and c, so that any
// slice of batch or sequence sees what the whole would see. y may be x. Its backward is the same op on the gradient.
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
};

struct DropoutArgs {
  Tensor y;
  ConstTensor x;
  ConstTensor positions;
  double probability;  // of an element being dropped, in [0, 1)
  std::uint64_t key;
  std::int64_t first_sample = 0;
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
