// The bytes of a tensor on the host, part by part, wherever its elements are: what is saved needs no copy of the whole.
#pragma once
#include <cstdint>
#include <functional>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace lockstep {

inline constexpr std::int64_t kPartBytes = 4 << 20;  // at most, of a tensor that is not contiguous on the host

// Calls body(bytes, how many) for whole elements, in order. The tensor is contiguous or strided rows
// (Tensor::rows_apart), on the host, or elsewhere beside a stream (tensor/transfer.h). The bytes are there during the
// call alone.
void each_part(const ConstTensor& tensor, Stream* stream, const std::function<void(const void*, std::int64_t)>& body);

}  // namespace lockstep
