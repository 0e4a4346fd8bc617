// What every CUDA kernel of this folder starts with: the stream, the launch's check, element types and fixed sums.
//
// Element types are those of tensor/dtype.h; widen and narrow convert them by the hardware's instructions.
// Compute<S> is what arithmetic on stored S is done in: double for fp64, float for all others. Sums over a block are
// made in one fixed tree, so the same launch gives the same bits in every run.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/error.h"
#include "base/integers.h"
#include "tensor/cuda/device.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace lockstep::cuda {

template <class S>
using Compute = std::conditional_t<std::is_same_v<S, double>, double, float>;

template <class S>
__device__ inline Compute<S> widen(S value) {
  if constexpr (std::is_same_v<S, f16>)
    return __half2float(__ushort_as_half(value.bits));
  else
    return static_cast<Compute<S>>(value);
}

// One rounding, to nearest even, from any float type to any other; a NaN stays a NaN. From double to 16 bits the way
// leads over float, rounded to odd, so that the second rounding sees that something was lost by the first.
template <class S, class T>
__device__ inline S narrow(T value) {
  if constexpr (std::is_same_v<S, T>) {
    return value;
  } else if constexpr (sizeof(S) != 2) {
    return static_cast<S>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    const float toward_zero = __double2float_rz(value);
    const bool exact = static_cast<double>(toward_zero) == value;
    return narrow<S>(exact ? toward_zero : __uint_as_float(__float_as_uint(toward_zero) | 1u));
  } else {
    S result;
    if constexpr (std::is_same_v<S, bf16>)
      result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(value)));
    else
      result.bits = __half_as_ushort(__float2half_rn(static_cast<float>(value)));
    return result;
  }
}

inline cudaStream_t native(lockstep::Stream& stream) { return static_cast<cudaStream_t>(Stream::of(stream).native()); }

// After a launch: an error of the launch itself (sizes, missing code for this GPU) is named here; one of the kernel
// shows at the next synchronisation.
inline void check_launch(const char* op) { check_cuda(cudaGetLastError(), op); }

template <class T>
struct TypeTag {
  using Type = T;
};

// Calls body(TypeTag<S>) for the element type of a float dtype.
template <class Body>
void with_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f64:
      return body(TypeTag<double>{});
    case DType::f32:
      return body(TypeTag<float>{});
    case DType::bf16:
      return body(TypeTag<bf16>{});
    case DType::f16:
      return body(TypeTag<f16>{});
    default:
      LOCKSTEP_CHECK(false, "no float type: {}", name_of(dtype));
  }
}

// The same for an activation type and a result that is of it or of its accumulator type.
template <class Body>
void with_float_and_result(DType dtype, DType result, Body&& body) {
  with_float(dtype, [&](auto s) {
    using S = typename decltype(s)::Type;
    if (result == dtype)
      body(s, s);
    else
      body(s, TypeTag<Compute<S>>{});
  });
}

inline constexpr int kThreads = 256;

// Blocks for `count` items of one thread each, within what a grid may have; kernels stride over the rest.
inline unsigned blocks_for(std::int64_t count, int threads = kThreads) {
  return static_cast<unsigned>(std::min<std::int64_t>(std::max<std::int64_t>(1, ceil_div(count, threads)), 1 << 20));
}

// The sum of `value` over the block's kThreads threads, the same for all of them: lanes by a fixed butterfly, then
// warps in order. Every thread of the block must call it.
template <class T>
__device__ T block_sum(T value) {
  __shared__ T partial[32];
  __syncthreads();  // a call before may still be read
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  T total = 0;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp) total += partial[warp];
  return total;
}

template <class T>
__device__ T block_max(T value) {
  __shared__ T partial[32];
  __syncthreads();
  for (int offset = 16; offset > 0; offset /= 2) value = max(value, __shfl_xor_sync(0xffffffffu, value, offset));
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  T largest = partial[0];
  for (int warp = 1; warp < static_cast<int>(blockDim.x) / 32; ++warp) largest = max(largest, partial[warp]);
  return largest;
}

}  // namespace lockstep::cuda
