// Magnitudes as integers: the bits of a float without its sign are in the order of magnitudes, and those of a NaN come
// last.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace lockstep::cuda {

template <class A>
using Magnitude = std::conditional_t<std::is_same_v<A, double>, unsigned long long, unsigned>;

__device__ inline unsigned magnitude_of(float v) { return __float_as_uint(v) & 0x7fffffffu; }
__device__ inline unsigned long long magnitude_of(double v) {
  return static_cast<unsigned long long>(__double_as_longlong(v)) & 0x7fffffffffffffffull;
}

}  // namespace lockstep::cuda
