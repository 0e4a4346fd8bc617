// How the sum of a block of bytes counts in the hash of a tensor (kernels/block_hash.h): mixed with the block's number.
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define LOCKSTEP_EVERYWHERE __host__ __device__
#else
#define LOCKSTEP_EVERYWHERE
#endif

namespace lockstep {

// Two rounds of multiplying and folding: every bit of the sum and of the number reaches every bit of the result.
LOCKSTEP_EVERYWHERE inline std::uint64_t placed_sum(std::uint64_t sum, std::uint64_t block) {
  std::uint64_t x = sum + (block + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

}  // namespace lockstep

#undef LOCKSTEP_EVERYWHERE
