// What this machine can do at most, measured now: the ceilings that kernel rates are compared with.
#pragma once
#include <cstddef>

#include "tensor/dtype.h"

namespace lockstep::cpu {

// Fused multiply-adds in registers alone, in FLOP/s, on this many threads (fp64: double; else float).
double fma_peak(DType dtype, int threads);

// Bytes read plus bytes written per second by a copy of this many bytes on this many threads; by default far more than
// caches hold.
double copy_bandwidth(int threads, std::size_t bytes = std::size_t{256} << 20);

}  // namespace lockstep::cpu
