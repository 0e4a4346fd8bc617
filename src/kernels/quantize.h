// Quantization to FP8 with one scale for a tensor, found from the tensor as it is (current scaling).
//
// amax: amax = max |x|, or NaN where x has one; if it joins, the larger of that and what amax held. quantize: scale =
// the smallest power of two, not below 2^-62, with amax / scale no larger than the type's largest number; q = x /
// scale, rounded to nearest, ties to even; turned, the same as (C, R). Dividing by a power of two rounds nothing, and a
// floating-point type gains nothing by a finer scale: what q holds is x to the type's bits. The scale of zeros is 1;
// where amax is not finite, the scale is NaN, and so is every product of q, which keeps a bad value visible.
//
// With a `norm`, x is what that norm was given, and what it gave is quantized (rms: weight and rstd; layer: all four,
// as in rmsnorm.h and layernorm.h), to E4M3 and equal bit for bit to quantizing what the norm's forward writes.
//
// Shapes: x (R, C) bf16; amax, scale (1) float; q (R, C) and turned (C, R) of one FP8 type, either of the two or both.
// amax takes any R and C; quantize takes multiples of 16, reads x once for both results, and they are contiguous and
// begin at multiples of 16 bytes, as products want them. x may lie anywhere; a GPU is faster where its rows begin at
// multiples of 16 bytes. The largest value does not depend on an order, so the bits are the same for any number of
// threads.
#pragma once
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

struct AmaxArgs {
  Tensor amax;
  ConstTensor x;
  bool joins = false;
};

// Weight and bias (C) bf16; mean and rstd (R) float.
struct QuantizedNorm {
  ConstTensor weight = {}, bias = {}, mean = {}, rstd = {};
};

struct QuantizeArgs {
  Tensor q = {};
  Tensor turned = {};
  Tensor scale;
  ConstTensor x;
  ConstTensor amax;
  QuantizedNorm norm = {};
};

using Amax = void(const AmaxArgs&, Stream&);
using Quantize = void(const QuantizeArgs&, Stream&);
Amax amax;
Quantize quantize;
namespace cpu {
Amax amax;
Quantize quantize;
}  // namespace cpu
namespace cuda {
Amax amax;
Quantize quantize;
}  // namespace cuda
namespace meta {
Amax amax;
Quantize quantize;
}  // namespace meta

}  // namespace lockstep
