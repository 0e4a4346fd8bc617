// What Hopper's attention kernels are told of their operands: where rows are, and which keys a query sees.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

namespace lockstep::cuda::hopper {

// In elements, of (B, T, heads, D) whose last dim is dense.
struct Strides {
  std::int64_t sample, token, head;
};

// Which keys a query sees: up to its own place and `shift` more (causal), from where its document begins.
struct Sight {
  const std::int32_t* starts;  // (B, queries): where documents begin; null: there are none
  std::int64_t starts_sample;  // stride
  int first_key;               // of the keys' first, in the count of starts
  int queries, keys;
  bool causal;

  __device__ int shift() const { return keys - queries; }
  // The key with which a query's document begins; of a query beyond the last, the last one's.
  __device__ int first_seen(int sample, int query) const {
    if (!starts) return 0;
    return max(starts[sample * starts_sample + min(query, queries - 1)] - first_key, 0);
  }
  // Before which key the queries below `end` see all they see.
  __device__ int seen(int end) const { return causal ? min(end + shift(), keys) : keys; }
};

}  // namespace lockstep::cuda::hopper
