// The plain elementwise ops: y = a + b (a residual joins), y = x in another type, y = x · factor, y = a constant.
//
// All operands contiguous and of one shape. add: one float type for all three, y may be a or b. cast: any two float
// types, rounding to nearest even. scale: one float type, y may be x; the product is made in the accumulator type.
// fill: any float type.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct AddArgs {
  Tensor y;
  ConstTensor a;
  ConstTensor b;
};

struct CastArgs {
  Tensor y;
  ConstTensor x;
};

struct ScaleArgs {
  Tensor y;
  ConstTensor x;
  double factor;
};

struct FillArgs {
  Tensor y;
  double value;
};

using Add = void(const AddArgs&, Stream&);
using Cast = void(const CastArgs&, Stream&);
using Scale = void(const ScaleArgs&, Stream&);
using Fill = void(const FillArgs&, Stream&);
Add add;
Cast cast;
Scale scale;
Fill fill;
// Makes a new tensor zero, also one beside the stream's device, on the host or the disk, at once.
void clear(const Tensor& y, Stream& stream);
namespace cpu {
Add add;
Cast cast;
Scale scale;
Fill fill;
}  // namespace cpu
namespace cuda {
Add add;
Cast cast;
Scale scale;
Fill fill;
}  // namespace cuda
namespace meta {
Add add;
Cast cast;
Scale scale;
Fill fill;
}  // namespace meta

}  // namespace lockstep
