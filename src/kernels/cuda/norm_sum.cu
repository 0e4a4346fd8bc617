// The bins are the cpu's to the last integer: a block's squares are added in the same eight lanes and the same tree,
// and integers may be added in any order.
#include "kernels/norm_sum.h"

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm_bins.cuh"

namespace lockstep::cuda {

namespace {

constexpr int kNormLanes = 8;
constexpr int kSpan = kThreads / kNormLanes * kNormBlock;  // elements a thread block takes at a time
constexpr std::int64_t kMostBlocks = 1024;                 // each ends with one round of atomics to the same few bins

template <class S>
__global__ void __launch_bounds__(kThreads) norm_sum_kernel(unsigned long long* bins, const S* x, std::int64_t n) {
  __shared__ unsigned long long mine[kNormBins];
  for (int i = threadIdx.x; i < kNormBins; i += kThreads) mine[i] = 0;
  __syncthreads();
  const int lane = threadIdx.x % kNormLanes, block = threadIdx.x / kNormLanes;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kSpan;
  // All threads go round equally often: those with nothing left add zero.
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kSpan; first < n; first += stride) {
    const std::int64_t begin = first + block * kNormBlock, end = min(n, begin + kNormBlock);
    double sum = 0;
    for (std::int64_t i = begin + lane; i < end; i += kNormLanes) {
      const double v = static_cast<double>(widen(x[i]));
      sum = fma(v, v, sum);
    }
    for (int half = kNormLanes / 2; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffffu, sum, half, kNormLanes);
    if (lane != 0) continue;
    if (!isfinite(sum)) {
      atomicAdd(&mine[kNormDigits], 1ull);
      continue;
    }
    const NormDigits digits = norm_digits(sum);
    for (int i = 0; i < 3; ++i)
      if (digits.digit[i] != 0) atomicAdd(&mine[digits.first + i], static_cast<unsigned long long>(digits.digit[i]));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kNormBins; i += kThreads)
    if (mine[i] != 0) atomicAdd(&bins[i], mine[i]);
}

}  // namespace

void norm_sum(const NormSumArgs& a, lockstep::Stream& stream) {
  // Two's complement: adding unsigned is adding signed.
  auto* bins = reinterpret_cast<unsigned long long*>(a.bins.data<std::int64_t>());
  if (!a.accumulate) {
    const cudaError_t status = cudaMemsetAsync(bins, 0, kNormBins * sizeof *bins, native(stream));
    if (status != cudaSuccess)
      throw EnvironmentError(fmt::format("norm_sum on the GPU failed: cudaMemsetAsync: {} ({})",
                                         cudaGetErrorString(status), cudaGetErrorName(status)));
  }
  const std::int64_t n = a.x.elements();
  const auto blocks = static_cast<unsigned>(std::clamp<std::int64_t>(ceil_div(n, kSpan), 1, kMostBlocks));
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    norm_sum_kernel<S><<<blocks, kThreads, 0, native(stream)>>>(bins, a.x.data<S>(), n);
  });
  check_launch("norm_sum");
}

}  // namespace lockstep::cuda
