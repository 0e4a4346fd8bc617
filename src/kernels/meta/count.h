// How meta twins count: operations given, bytes read off the operands.
#pragma once
#include <initializer_list>

#include "tensor/meta/stream.h"
#include "tensor/tensor.h"

namespace lockstep::meta {

// Adds one kernel's work: each operand that is there is read, or written, once.
inline Work& count(lockstep::Stream& stream, std::int64_t flops, std::initializer_list<ConstTensor> reads,
                   std::initializer_list<ConstTensor> writes) {
  Work& work = Stream::of(stream).work();
  work.flops += flops;
  for (const ConstTensor& t : reads)
    if (t) work.bytes_read += t.bytes();
  for (const ConstTensor& t : writes)
    if (t) work.bytes_written += t.bytes();
  ++work.calls;
  return work;
}

// The same of a matrix product or of attention.
inline void count_products(lockstep::Stream& stream, std::int64_t flops, std::initializer_list<ConstTensor> reads,
                           std::initializer_list<ConstTensor> writes) {
  const Work before = Stream::of(stream).work();
  Work& work = count(stream, flops, reads, writes);
  work.matmul_flops += flops;
  work.matmul_bytes += work.bytes_read - before.bytes_read + work.bytes_written - before.bytes_written;
}

// What an accumulating kernel reads of its result.
inline ConstTensor if_accumulating(bool accumulate, const ConstTensor& t) { return accumulate ? t : ConstTensor{}; }

}  // namespace lockstep::meta
