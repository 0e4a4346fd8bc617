// Work that kernels did, added up and taken apart.
#pragma once
#include "tensor/meta/stream.h"

namespace lockstep::meta {

inline Work operator-(const Work& a, const Work& b) {
  return {.flops = a.flops - b.flops,
          .matmul_flops = a.matmul_flops - b.matmul_flops,
          .bytes_read = a.bytes_read - b.bytes_read,
          .bytes_written = a.bytes_written - b.bytes_written,
          .matmul_bytes = a.matmul_bytes - b.matmul_bytes,
          .calls = a.calls - b.calls,
          .seconds = a.seconds - b.seconds};
}

inline Work& operator+=(Work& a, const Work& b) {
  a.flops += b.flops;
  a.matmul_flops += b.matmul_flops;
  a.bytes_read += b.bytes_read;
  a.bytes_written += b.bytes_written;
  a.matmul_bytes += b.matmul_bytes;
  a.calls += b.calls;
  a.seconds += b.seconds;
  return a;
}

}  // namespace lockstep::meta
