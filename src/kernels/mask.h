// Elements that a mask keeps: packed one after the other, put back into their places, and all others set to one value.
//
// A mask has a bit for each element of a flat tensor of n: element i's is bit i % 64 of word i / 64. Bits from n on
// mean nothing. k of the n bits are set; a GPU does not check that, and leaves out what is beyond k.
//
// pack:    y[j] = x[i] for the j-th i, ascending, whose bit is set
// unpack:  x[i] = y[j] for those, and x[i] = rest for all others
// keep:    x[i] = rest where the bit is not set
//
// Shapes: dense (n), packed (k), of one float type, not the same memory; mask (n / 64, rounded up) int64.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct PackArgs {
  Tensor packed;
  ConstTensor dense;
  ConstTensor mask;
};

struct UnpackArgs {
  Tensor dense;
  ConstTensor packed;
  ConstTensor mask;
  double rest = 0;
};

struct KeepArgs {
  Tensor dense;
  ConstTensor mask;
  double rest = 0;
};

// Words of a mask of so many elements.
constexpr std::int64_t mask_words(std::int64_t elements) { return (elements + 63) / 64; }

using Pack = void(const PackArgs&, Stream&);
using Unpack = void(const UnpackArgs&, Stream&);
using Keep = void(const KeepArgs&, Stream&);
Pack pack;
Unpack unpack;
Keep keep;
namespace cpu {
Pack pack;
Unpack unpack;
Keep keep;
}  // namespace cpu
namespace cuda {
Pack pack;
Unpack unpack;
Keep keep;
}  // namespace cuda
namespace meta {
Pack pack;
Unpack unpack;
Keep keep;
}  // namespace meta

}  // namespace lockstep
