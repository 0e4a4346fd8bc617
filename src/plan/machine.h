// What this machine can do, measured now.
#pragma once
#include <string>

#include "tensor/device.h"
#include "tensor/dtype.h"

namespace lockstep {

// FLOP/s of this program's own matrix product at a size that fills the device, the best of several runs. Takes about a
// sixth of a second.
double gemm_peak(Device device, DType dtype, int threads);

// What MFU is relative to: a GPU's dense peak as its maker states it, where it is known; else the measured product.
struct Peak {
  double flops;
  std::string source;  // "matrix products reach 293 GFLOP/s here", "an NVIDIA H200 has 989 TFLOP/s"
};
Peak peak_of(Device device, DType compute, int threads);

}  // namespace lockstep
