// Where each of many counts begins when what they count is put one after the other: exclusive sums, in their order.
//
// Sums are of integers, so they are exact and no order of adding them matters. Blocks are of kThreads threads.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace lockstep::cuda {

using Count = unsigned long long;

struct SumBefore {
  Count before;  // of the block's threads before this one
  Count all;
};
// Every thread of the block must call it.
__device__ inline SumBefore sum_before(Count value) {
  __shared__ Count of_warp[kThreads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  Count sum = value;
  for (int offset = 1; offset < 32; offset *= 2) {
    const Count other = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += other;
  }
  __syncthreads();  // a call before may still be read
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  SumBefore found{sum - value, 0};
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) found.before += of_warp[w];
    found.all += of_warp[w];
  }
  return found;
}

// counts[i] becomes the sum of those before it; one block.
template <class T>
__global__ void __launch_bounds__(kThreads) sum_tiles_before(T* counts, std::int64_t count) {
  Count before = 0;
  for (std::int64_t first = 0; first < count; first += kThreads) {
    const std::int64_t i = first + threadIdx.x;
    const SumBefore sum = sum_before(i < count ? static_cast<Count>(counts[i]) : 0);
    if (i < count) counts[i] = static_cast<T>(before + sum.before);
    before += sum.all;
  }
}

}  // namespace lockstep::cuda
