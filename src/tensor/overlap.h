// Whether two views share memory: what kernels that write one operand and read another ask before they run.
#pragma once
#include "tensor/tensor.h"

namespace lockstep {

// True when the views have no byte in common. Exact for two whose elements are equally far apart in every dim, in
// bytes, so that slices of one tensor may interleave; of others only the ranges are compared, from the first byte to
// the last. Both of one shape, the last dim contiguous, no stride negative. On meta, where there is no memory, true.
bool apart(const ConstTensor& a, const ConstTensor& b);

// True when both name the same elements: type, address, and strides wherever there are two of something.
bool same_view(const ConstTensor& a, const ConstTensor& b);

}  // namespace lockstep
