// XXH3-64 of blocks of 4 KiB, as the library computes it on the host: eight threads take a block together, one for each
// of its eight accumulators, and read 64 neighbouring bytes at a time.
//
// The library (xxHash, BSD licence) mixes in 16 stripes of 64 bytes with a secret, then scrambles, and in the end folds
// pairs of accumulators by 128-bit products. A block of 4 KiB is three rounds of that and 15 stripes more, and its last
// 64 bytes once again. Sums are added by integer atomics, whose order does not matter.
#include "kernels/block_hash.h"

#include <algorithm>

#include "kernels/block_sum.h"
#include "kernels/cuda/flat.cuh"

namespace lockstep::cuda {

namespace {

using Word = std::uint64_t;

constexpr int kLanes = 8, kSecretWords = 24;
// The library's primes.
constexpr Word kPrime32a = 0x9E3779B1u, kPrime32b = 0x85EBCA77u, kPrime32c = 0xC2B2AE3Du;
constexpr Word kPrime64a = 0x9E3779B185EBCA87ull, kPrime64b = 0xC2B2AE3D27D4EB4Full, kPrime64c = 0x165667B19E3779F9ull,
               kPrime64d = 0x85EBCA77C2B2AE63ull, kPrime64e = 0x27D4EB2F165667C5ull;

// The library's own secret, as little-endian words.
__constant__ Word kSecret[kSecretWords] = {
    0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull, 0x78e5c0cc4ee679cbull,
    0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull, 0xcb00c391bb52283cull, 0xa32e531b8b65d088ull,
    0x4ef90da297486471ull, 0xd8acdea946ef1938ull, 0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull,
    0x647378d9c97e9fc8ull, 0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
    0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull};

// Eight bytes of the secret from any place on that is no multiple of eight.
__device__ Word key_at(const Word* secret, int byte) {
  const int shift = byte % 8 * 8;
  return secret[byte / 8] >> shift | secret[byte / 8 + 1] << (64 - shift);
}

// Word `at` of n bytes, zeros from their end on.
template <bool kAligned>
__device__ Word word_at(const unsigned char* x, std::int64_t n, std::int64_t at) {
  const std::int64_t begin = at * 8;
  if (kAligned && begin + 8 <= n) return *reinterpret_cast<const Word*>(x + begin);
  Word word = 0;
  for (int i = 0; i < 8; ++i)
    if (begin + i < n) word |= static_cast<Word>(x[begin + i]) << (8 * i);
  return word;
}

__device__ void accumulate(Word& sum, Word data, Word key) {
  const Word mixed = data ^ key;
  sum += __shfl_xor_sync(0xffffffffu, data, 1) + (mixed & 0xffffffffu) * (mixed >> 32);
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    block_hash_kernel(unsigned long long* hash, const unsigned char* x, std::int64_t n, std::int64_t blocks) {
  constexpr int kStripes = 16, kRounds = kHashedBlock / (kStripes * 64);
  __shared__ Word secret[kSecretWords];  // threads of a warp read different words of it
  if (threadIdx.x < kSecretWords) secret[threadIdx.x] = kSecret[threadIdx.x];
  __syncthreads();
  const int lane = threadIdx.x % kLanes;
  const std::int64_t groups = std::int64_t{gridDim.x} * (kThreads / kLanes);
  const std::int64_t group = std::int64_t{blockIdx.x} * (kThreads / kLanes) + threadIdx.x / kLanes;
  const Word start[kLanes] = {kPrime32c, kPrime64a, kPrime64b, kPrime64c, kPrime64d, kPrime32b, kPrime64e, kPrime32a};
  Word low = 0, high = 0;
  // All threads of a warp go round equally often: those beyond the end hash zeros, which do not count.
  for (std::int64_t first = 0; first < blocks; first += groups) {
    const std::int64_t block = first + group, word = block * (kHashedBlock / 8) + lane;
    Word sum = start[0];
#pragma unroll
    for (int i = 1; i < kLanes; ++i)
      if (lane == i) sum = start[i];
    Word last = 0;
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
      const bool ends = round == kRounds - 1;
#pragma unroll 4
      for (int stripe = 0; stripe < kStripes; ++stripe) {
        last = word_at<kAligned>(x, n, word + (round * kStripes + stripe) * kLanes);
        if (!ends || stripe < kStripes - 1) accumulate(sum, last, secret[stripe + lane]);
      }
      if (ends) break;
      sum ^= sum >> 47;
      sum = (sum ^ secret[16 + lane]) * kPrime32a;
    }
    accumulate(sum, last, key_at(secret, 121 + 8 * lane));
    // Pairs of lanes, by the even one.
    const Word mine = sum ^ key_at(secret, 11 + 8 * lane), other = __shfl_xor_sync(0xffffffffu, mine, 1);
    Word folded = lane % 2 == 0 ? (mine * other) ^ __umul64hi(mine, other) : 0;
    for (int offset = 4; offset > 0; offset /= 2) folded += __shfl_xor_sync(0xffffffffu, folded, offset);
    Word result = folded + static_cast<Word>(kHashedBlock) * kPrime64a;
    result = (result ^ (result >> 37)) * 0x165667919E3779F9ull;
    result ^= result >> 32;
    if (lane != 0 || block >= blocks) continue;
    result = placed_sum(result, static_cast<Word>(block));
    low += result & 0xffffffffu;
    high += result >> 32;
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    low += __shfl_xor_sync(0xffffffffu, low, offset);
    high += __shfl_xor_sync(0xffffffffu, high, offset);
  }
  if (threadIdx.x % 32 != 0 || (low == 0 && high == 0)) return;
  atomicAdd(&hash[0], low);
  atomicAdd(&hash[1], high);
}

}  // namespace

void block_hash(const BlockHashArgs& a, lockstep::Stream& stream) {
  auto* const hash = reinterpret_cast<unsigned long long*>(a.hash.data<std::int64_t>());
  check_cuda(cudaMemsetAsync(hash, 0, kBlockHashWords * sizeof *hash, native(stream)), "cudaMemsetAsync");
  const std::int64_t bytes = a.x.bytes(), blocks = ceil_div(bytes, kHashedBlock);
  if (blocks == 0) return;
  const auto* const x = static_cast<const unsigned char*>(a.x.raw());
  const bool aligned = reinterpret_cast<std::uintptr_t>(x) % 8 == 0;
  const auto kernel = aligned ? block_hash_kernel<true> : block_hash_kernel<false>;
  kernel<<<resident_blocks(kernel, ceil_div(blocks, std::int64_t{kThreads / kLanes})), kThreads, 0, native(stream)>>>(
      hash, x, bytes, blocks);
  check_launch("block_hash");
}

}  // namespace lockstep::cuda
