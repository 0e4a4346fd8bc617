// Converts elements of one float type to another, on the host, for import, export and loading.
//
// One rounding, to nearest, ties to even, also from fp64 to the 16-bit types; a NaN stays a NaN. Equal types are copied
// bit for bit. Both ends are aligned for their element types and do not overlap.
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
