// Copies between host memory and a device's tensors.
//
// upload and download move a contiguous tensor's bytes to or from plain host memory, in the stream's order, and return
// when the host memory may be used again. On meta an upload does nothing and a download gives zeros.
#pragma once
#include <vector>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

void upload(Tensor to, const void* from, Stream& stream);
void download(void* to, ConstTensor from, Stream& stream);
// A contiguous float tensor's elements as doubles, whatever its type; for reports, not for steps.
std::vector<double> to_doubles(ConstTensor from, Stream& stream);

}  // namespace lockstep
