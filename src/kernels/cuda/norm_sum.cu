// The bins are the cpu's to the last integer: a block's squares are added in the same eight lanes and the same tree,
// and integers may be added in any order.
//
// Eight threads take a block of 256 elements together and read 32 neighbouring ones at a time, four each, so that every
// access is wide and full; since a lane's squares must be added one after the other, they then exchange what they read
// until each has four elements of one lane. A warp sums sixteen blocks before their sums become digits, by sixteen
// threads at once, and collects the digits in registers: atomics, even those on shared memory, would cost more than the
// reading.
#include "kernels/norm_sum.h"

#include "kernels/cuda/flat.cuh"
#include "kernels/cuda/norm_bins.cuh"

namespace lockstep::cuda {

namespace {

constexpr int kGroup = 8;  // threads on a block, and lanes of its sum
constexpr int kTurns = 4;  // blocks that a group takes at a time
// Elements that a warp, and that all warps of a thread block, take at a time.
constexpr std::int64_t kWarpSpan = 32 / kGroup * kTurns * kNormBlock, kBlockSpan = kThreads / 32 * kWarpSpan;
constexpr unsigned kAll = 0xffffffffu;

// Thread q of a group holds elements 4 (q % 2) … + 3 of row q / 2, of four rows of eight. Afterwards it holds element
// 4 (q % 2) + q / 2 of all four.
template <class T>
__device__ void exchange(T (&v)[4], int q) {
  const bool odd = (q & 2) != 0, high = (q & 4) != 0;
#pragma unroll
  for (int k = 0; k < 4; k += 2) {
    const T got = __shfl_xor_sync(kAll, odd ? v[k] : v[k + 1], 2);
    if (odd)
      v[k] = got;
    else
      v[k + 1] = got;
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const T got = __shfl_xor_sync(kAll, high ? v[k] : v[k + 2], 4);
    if (high)
      v[k] = got;
    else
      v[k + 2] = got;
  }
}

// Adds the squares of the four elements that this thread gets of the four rows it holds a part of.
template <class S>
__device__ double add_squares(const Pack<S, 4>& part, double sum, int q) {
  Compute<S> v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = widen(part.at[k]);
  exchange(v, q);
#pragma unroll
  for (int k = 0; k < 4; ++k) sum = fma(static_cast<double>(v[k]), static_cast<double>(v[k]), sum);
  return sum;
}

constexpr int kReads = kNormBlock / (4 * kGroup);  // of each thread on a block

// The sum of squares of this thread's lane of the block at x.
template <class S>
__device__ double lane_sum(const S* x, int q) {
  Pack<S, 4> part[kReads];
#pragma unroll
  for (int r = 0; r < kReads; ++r) part[r] = load_pack<S, 4>(x + 4 * (kGroup * r + q));
  double sum = 0;
#pragma unroll
  for (int r = 0; r < kReads; ++r) sum = add_squares(part[r], sum, q);
  return sum;
}

// The same of a block of which `count` elements are there (it may be none), at any place.
template <class S>
__device__ __noinline__ double lane_sum_of_some(const S* x, std::int64_t count, int q) {
  double sum = 0;
#pragma unroll 1
  for (int at = 4 * q; at < kNormBlock; at += 4 * kGroup)
    sum = add_squares(load_some<S, 4>(x + at, count - at), sum, q);
  return sum;
}

// From the lanes' sums of four blocks to the blocks' own, each in the tree (lane + 4, + 2, + 1) of the cpu. Threads
// whose bit 1 is clear hold one each afterwards.
__device__ double block_sums(const double (&sum)[kTurns], int q) {
  double pair[2];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const double got = __shfl_xor_sync(kAll, (q & 1) != 0 ? sum[k] : sum[k + 2], 1);
    pair[k] = ((q & 1) != 0 ? sum[k + 2] : sum[k]) + got;
  }
  const double got = __shfl_xor_sync(kAll, (q & 4) != 0 ? pair[0] : pair[1], 4);
  const double half = ((q & 4) != 0 ? pair[1] : pair[0]) + got;
  return half + __shfl_xor_sync(kAll, half, 2);
}

// The digits that a warp's threads have collected, each of its own sums: of bins base … base + 3, the same for all.
// Sums of like size all fall there; one that does not moves the window, and one far from its neighbours goes past it.
class Window {
 public:
  __device__ explicit Window(unsigned long long* bins) : bins_(bins) {}

  // Every thread of the warp calls it; `sum` counts where `mine` says so.
  __device__ void add(double sum, bool mine) {
    mine = mine && sum != 0;
    if (mine && !isfinite(sum)) {
      atomicAdd(&bins_[kNormDigits], 1ull);
      mine = false;
    }
    const NormDigits digits = norm_digits(mine ? sum : 1.0);
    const int first = mine ? digits.first : kNormDigits;
    const int lowest = __reduce_min_sync(kAll, first);
    if (lowest == kNormDigits) return;  // nothing to add
    if (__any_sync(kAll, mine && (first < base_ || first > base_ + 1))) {
      empty();
      base_ = lowest;
    }
    if (!mine) return;
    if (first > base_ + 1) {
      for (int k = 0; k < 3; ++k) atomicAdd(&bins_[first + k], static_cast<unsigned long long>(digits.digit[k]));
    } else if (first == base_) {
      for (int k = 0; k < 3; ++k) digit_[k] += digits.digit[k];
    } else {
      for (int k = 0; k < 3; ++k) digit_[k + 1] += digits.digit[k];
    }
  }

  // To the bins; every thread of the warp calls it.
  __device__ void empty() {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned long long total = digit_[k];
      for (int offset = 16; offset > 0; offset /= 2) total += __shfl_xor_sync(kAll, total, offset);
      if (threadIdx.x % 32 == 0 && total != 0) atomicAdd(&bins_[base_ + k], total);
      digit_[k] = 0;
    }
  }

 private:
  unsigned long long* bins_;
  unsigned long long digit_[4] = {};
  int base_ = -2;  // nothing fits yet
};

template <class S>
__global__ void __launch_bounds__(kThreads, 2)
    norm_sum_kernel(unsigned long long* bins, const S* x, std::int64_t n, bool packed) {
  __shared__ unsigned long long mine[kNormBins];
  for (int i = threadIdx.x; i < kNormBins; i += kThreads) mine[i] = 0;
  __syncthreads();
  const int q = threadIdx.x % kGroup, group = threadIdx.x % 32 / kGroup;
  const std::int64_t stride = std::int64_t{gridDim.x} * kBlockSpan;
  Window window(mine);
  // A warp's threads go round equally often: those with nothing left add zero.
  for (std::int64_t first = (std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32) * kWarpSpan; first < n;
       first += stride) {
    const bool whole = packed && first + kWarpSpan <= n;
    double sum[kTurns];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const std::int64_t begin = first + (turn * (32 / kGroup) + group) * kNormBlock;
      sum[turn] = whole ? lane_sum(x + begin, q) : lane_sum_of_some(x + begin, n - begin, q);
    }
    window.add(block_sums(sum, q), (q & 2) == 0);
  }
  window.empty();
  __syncthreads();
  for (int i = threadIdx.x; i < kNormBins; i += kThreads)
    if (mine[i] != 0) atomicAdd(&bins[i], mine[i]);
}

}  // namespace

void norm_sum(const NormSumArgs& a, lockstep::Stream& stream) {
  // Two's complement: adding unsigned is adding signed.
  auto* bins = reinterpret_cast<unsigned long long*>(a.bins.data<std::int64_t>());
  if (!a.accumulate) check_cuda(cudaMemsetAsync(bins, 0, kNormBins * sizeof *bins, native(stream)), "cudaMemsetAsync");
  const std::int64_t n = a.x.elements();
  with_float(a.x.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    const S* x = a.x.data<S>();
    const unsigned blocks = resident_blocks(norm_sum_kernel<S>, ceil_div(n, kBlockSpan));
    norm_sum_kernel<S><<<blocks, kThreads, 0, native(stream)>>>(bins, x, n, packed<4>(x));
  });
  check_launch("norm_sum");
}

}  // namespace lockstep::cuda
