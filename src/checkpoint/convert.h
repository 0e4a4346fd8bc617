// Elements of one float type as another, on the host: what import, export and loading do on the way.
//
// One rounding, to nearest, ties to even, also from fp64 to the 16-bit types; a NaN stays a NaN. Equal types are copied
// to the bit. Both ends aligned for their element types and apart.
#pragma once
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

void convert_floats(void* to, DType to_type, const void* from, DType from_type, std::int64_t count);

// `to` on its device, flat, receives as many elements from host memory, converted on the way, some at a time.
void upload_floats(Tensor to, const void* from, DType from_type, Stream& stream);

}  // namespace lockstep
