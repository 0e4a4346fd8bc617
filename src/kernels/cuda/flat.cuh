// Flat operands in packs: neighbouring elements that one thread moves at once, 16 bytes to an access where they can be.
//
// What only streams memory is as fast as it keeps wide accesses under way. So elements go in packs, by as many blocks
// as the GPU holds at a time; an end that fills no pack, and operands that begin off a pack's alignment, go element by
// element through the same arithmetic, to the same bits.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace lockstep::cuda {

template <class S, int N>
struct alignas(sizeof(S) * N < 16 ? sizeof(S) * N : 16) Pack {
  S at[N];
};

// Whether packs of N may be used from these places on; null is no obstacle.
template <int N, class... S>
bool packed(S*... at) {
  return ((reinterpret_cast<std::uintptr_t>(at) % alignof(Pack<S, N>) == 0) && ...);
}

template <class S, int N>
__device__ Pack<S, N> load_pack(const S* from) {
  return *reinterpret_cast<const Pack<S, N>*>(from);
}

// The k-th 32 bits of a pack.
template <class S, int N>
__device__ unsigned word_of(const Pack<S, N>& pack, int k) {
  if constexpr (sizeof(S) == 2)
    return pack.at[2 * k].bits | static_cast<unsigned>(pack.at[2 * k + 1].bits) << 16;
  else if constexpr (sizeof(S) == 4)
    return __float_as_uint(pack.at[k]);
  else
    return k % 2 == 0 ? __double2loint(pack.at[k / 2]) : __double2hiint(pack.at[k / 2]);
}

// As 32-bit words: left to itself, the compiler stores 16-bit elements two by two.
template <class S, int N>
__device__ void store_pack(S* to, const Pack<S, N>& pack) {
  constexpr int kWords = sizeof(S) * N / 4;
  if constexpr (kWords == 1) {
    __stcg(reinterpret_cast<unsigned*>(to), word_of(pack, 0));
  } else if constexpr (kWords == 2) {
    __stcg(reinterpret_cast<uint2*>(to), make_uint2(word_of(pack, 0), word_of(pack, 1)));
  } else {
#pragma unroll
    for (int k = 0; k < kWords; k += 4)
      __stcg(reinterpret_cast<uint4*>(to) + k / 4,
             make_uint4(word_of(pack, k), word_of(pack, k + 1), word_of(pack, k + 2), word_of(pack, k + 3)));
  }
}

// The first `count` elements of a pack, which may be none or more than N, one by one; zeros after them.
template <class S, int N>
__device__ Pack<S, N> load_some(const S* from, std::int64_t count) {
  Pack<S, N> pack;
#pragma unroll
  for (int k = 0; k < N; ++k) pack.at[k] = k < count ? from[k] : S{};
  return pack;
}
template <class S, int N>
__device__ void store_some(S* to, const Pack<S, N>& pack, std::int64_t count) {
#pragma unroll
  for (int k = 0; k < N; ++k)
    if (k < count) to[k] = pack.at[k];
}

// Blocks of kThreads for this much work: no more than the GPU holds at once, so that none begins when all others end.
template <class Kernel>
unsigned resident_blocks(Kernel* kernel, std::int64_t blocks_of_work) {
  int device = 0, processors = 0, of_each = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_each, kernel, kThreads, 0),
             "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const std::int64_t most = std::max<std::int64_t>(1, static_cast<std::int64_t>(processors) * of_each);
  return static_cast<unsigned>(std::clamp<std::int64_t>(blocks_of_work, 1, most));
}

}  // namespace lockstep::cuda
