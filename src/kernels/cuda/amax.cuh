// The largest magnitude of what a kernel writes in bf16, found by that kernel on its way (kernels/quantize.h).
//
// A thread notes its values in full and takes the largest of their bits, which are in the order of magnitudes with NaN
// last; rounding keeps that order, so the largest is rounded once, at the end. The order in which blocks come does not
// matter. Who launches the kernel sets amax to zero before.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace lockstep::cuda {

class LargestMagnitude {
 public:
  __device__ void note(float value) { bits_ = max(bits_, __float_as_uint(value) & 0x7fffffffu); }
  template <int N>
  __device__ void note_all(const float (&values)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) note(values[i]);
  }
  // Every thread of the block calls it, once. The bits of a float that is not negative, as an integer.
  __device__ void add_to(unsigned* amax) {
    const unsigned here = block_max(bits_);
    if (threadIdx.x != 0) return;
    const unsigned rounded = static_cast<unsigned>(narrow<bf16>(__uint_as_float(here)).bits) << 16;
    if (rounded > *static_cast<volatile unsigned*>(amax)) atomicMax(amax, rounded);
  }

 private:
  unsigned bits_ = 0;
};

// Stands for it where nobody asks.
struct NoMagnitude {
  __device__ void note(float) {}
  __device__ void note(double) {}
  template <class T, int N>
  __device__ void note_all(const T (&)[N]) {}
  __device__ void add_to(unsigned*) {}
};

template <bool Wanted>
using Magnitude = std::conditional_t<Wanted, LargestMagnitude, NoMagnitude>;

// Calls body(whether it is wanted), which a compile-time constant says; of other types than bf16 it never is.
template <class S, class Body>
void with_amax(const Tensor& amax, Body&& body) {
  if constexpr (std::is_same_v<S, bf16>)
    if (amax) return body(std::true_type{});
  body(std::false_type{});
}

inline unsigned* bits_of(const Tensor& amax) { return static_cast<unsigned*>(amax.raw()); }

// Before a kernel that adds to it.
inline void begin_amax(const Tensor& amax, lockstep::Stream& stream) {
  check_cuda(cudaMemsetAsync(amax.raw(), 0, sizeof(float), native(stream)), "amax");
}

}  // namespace lockstep::cuda
