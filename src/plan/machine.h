// What this machine can do, measured now.
#pragma once
#include "tensor/dtype.h"

namespace lockstep {

// FLOP/s of this program's own matrix product at a size that fills the caches, the best of several runs: what MFU is
// held to on a CPU. Takes about a sixth of a second.
double gemm_peak(DType dtype, int threads);

}  // namespace lockstep
