// Tiles count their bits, and put what they keep where all tiles before them end.
#include "kernels/mask.h"

#include "kernels/cuda/sums_before.cuh"

namespace lockstep::cuda {

namespace {

using MaskWord = unsigned long long;
constexpr int kTileElements = 64 * kThreads;  // a word for each thread

// Bits of the elements that there are.
__device__ inline MaskWord word_of_mask(const std::int64_t* mask, std::int64_t word, std::int64_t n) {
  const std::int64_t left = n - 64 * word;
  if (left <= 0) return 0;
  const auto all = static_cast<MaskWord>(mask[word]);
  return left >= 64 ? all : all & ((MaskWord{1} << left) - 1);
}

__global__ void __launch_bounds__(kThreads)
    count_kept(Count* tiles, const std::int64_t* mask, std::int64_t n, std::int64_t count) {
  for (std::int64_t tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const MaskWord word = word_of_mask(mask, tile * kThreads + threadIdx.x, n);
    const Count own = block_sum(static_cast<Count>(__popcll(word)));
    if (threadIdx.x == 0) tiles[tile] = own;
  }
}

// body(i, whether it is kept, how many that are kept come before it).
template <class Body>
__device__ void each_element(const std::int64_t* mask, const Count* tiles, std::int64_t n, std::int64_t count,
                             const Body& body) {
  __shared__ MaskWord words[kThreads];
  __shared__ Count before[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const MaskWord word = word_of_mask(mask, tile * kThreads + thread, n);
    const SumBefore sum = sum_before(static_cast<Count>(__popcll(word)));
    words[thread] = word;
    before[thread] = tiles[tile] + sum.before;
    __syncthreads();
    for (int e = thread; e < kTileElements; e += kThreads) {
      const std::int64_t i = tile * kTileElements + e;
      if (i >= n) break;
      const MaskWord bits = words[e / 64], below = (MaskWord{1} << (e % 64)) - 1;
      body(i, (bits >> (e % 64) & 1) != 0, static_cast<std::int64_t>(before[e / 64] + __popcll(bits & below)));
    }
    __syncthreads();
  }
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    pack_tiles(S* packed, std::int64_t k, const S* dense, const std::int64_t* mask, const Count* tiles, std::int64_t n,
               std::int64_t count) {
  each_element(mask, tiles, n, count, [&](std::int64_t i, bool kept, std::int64_t j) {
    if (kept && j < k) packed[j] = dense[i];
  });
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    unpack_tiles(S* dense, const S* packed, std::int64_t k, double rest, const std::int64_t* mask, const Count* tiles,
                 std::int64_t n, std::int64_t count) {
  const S other = narrow<S>(rest);
  each_element(mask, tiles, n, count,
               [&](std::int64_t i, bool kept, std::int64_t j) { dense[i] = kept && j < k ? packed[j] : other; });
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    keep_masked(S* dense, double rest, const std::int64_t* mask, std::int64_t n) {
  const S other = narrow<S>(rest);
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += std::int64_t{gridDim.x} * kThreads)
    if ((static_cast<MaskWord>(mask[i / 64]) >> (i % 64) & 1) == 0) dense[i] = other;
}

// Counts by tile, in the scratch: how many are kept before each.
Count* count_before_tiles(const ConstTensor& mask, std::int64_t n, std::int64_t tiles, lockstep::Stream& stream) {
  LOCKSTEP_CHECK(tiles * static_cast<std::int64_t>(sizeof(Count)) <= kScratchBytes,
                 "a mask of {} elements is more than the scratch holds", n);
  auto* const counts = static_cast<Count*>(Stream::of(stream).scratch());
  count_kept<<<blocks_for(tiles, 1), kThreads, 0, native(stream)>>>(counts, mask.data<std::int64_t>(), n, tiles);
  sum_tiles_before<<<1, kThreads, 0, native(stream)>>>(counts, tiles);
  return counts;
}

}  // namespace

void pack(const PackArgs& a, lockstep::Stream& stream) {
  const std::int64_t n = a.dense.elements(), tiles = ceil_div(n, std::int64_t{kTileElements});
  if (n == 0) return;
  const Count* const counts = count_before_tiles(a.mask, n, tiles, stream);
  with_float(a.dense.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    pack_tiles<S><<<blocks_for(tiles, 1), kThreads, 0, native(stream)>>>(
        a.packed.data<S>(), a.packed.elements(), a.dense.data<S>(), a.mask.data<std::int64_t>(), counts, n, tiles);
  });
  check_launch("pack");
}

void unpack(const UnpackArgs& a, lockstep::Stream& stream) {
  const std::int64_t n = a.dense.elements(), tiles = ceil_div(n, std::int64_t{kTileElements});
  if (n == 0) return;
  const Count* const counts = count_before_tiles(a.mask, n, tiles, stream);
  with_float(a.dense.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    unpack_tiles<S><<<blocks_for(tiles, 1), kThreads, 0, native(stream)>>>(
        a.dense.data<S>(), a.packed.data<S>(), a.packed.elements(), a.rest, a.mask.data<std::int64_t>(), counts, n,
        tiles);
  });
  check_launch("unpack");
}

void keep(const KeepArgs& a, lockstep::Stream& stream) {
  const std::int64_t n = a.dense.elements();
  if (n == 0) return;
  with_float(a.dense.dtype(), [&](auto s) {
    using S = typename decltype(s)::Type;
    keep_masked<S>
        <<<blocks_for(n), kThreads, 0, native(stream)>>>(a.dense.data<S>(), a.rest, a.mask.data<std::int64_t>(), n);
  });
  check_launch("keep");
}

}  // namespace lockstep::cuda
