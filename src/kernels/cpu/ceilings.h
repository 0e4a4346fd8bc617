// What this machine can do at most, measured now: the ceilings that kernel rates are compared with.
#pragma once
#include "tensor/dtype.h"

namespace lockstep::cpu {

// Fused multiply-adds in registers alone, in FLOP/s, on this many threads (fp64: double; else float).
double fma_peak(DType dtype, int threads);

// Bytes read plus bytes written each second by a copy that is far larger than the caches, on this many threads.
double copy_bandwidth(int threads);

}  // namespace lockstep::cpu
