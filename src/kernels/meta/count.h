// How meta twins count: operations given, bytes read off the operands.
#pragma once
#include <initializer_list>

#include "tensor/meta/stream.h"
#include "tensor/tensor.h"

namespace lockstep::meta {

using TensorList = std::initializer_list<ConstTensor>;

inline std::int64_t bytes_of(TensorList tensors) {
  std::int64_t bytes = 0;
  for (const ConstTensor& t : tensors)
    if (t) bytes += t.bytes();
  return bytes;
}

// Adds one kernel's work: each operand that is there is read, or written, once.
inline void count(lockstep::Stream& stream, Kernel kernel, TensorList reads, TensorList writes) {
  kernel.read += bytes_of(reads);
  kernel.written += bytes_of(writes);
  Stream::of(stream).add(kernel);
}
inline void count(lockstep::Stream& stream, KernelKind kind, std::int64_t flops, TensorList reads, TensorList writes) {
  count(stream, {.kind = kind, .flops = flops}, reads, writes);
}

// What an accumulating kernel reads of its result.
inline ConstTensor if_accumulating(bool accumulate, const ConstTensor& t) { return accumulate ? t : ConstTensor{}; }

}  // namespace lockstep::meta
