// The largest magnitude of a tensor of bf16, found by many threads (kernels/quantize.h).
#pragma once
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "tensor/tensor.h"

namespace lockstep::cpu {

class LargestMagnitude {
 public:
  // What was found before it.
  explicit LargestMagnitude(float before = 0) : largest_(std::bit_cast<std::uint32_t>(before) >> 16) {}

  void note(const bf16* x, std::int64_t count) {
    constexpr std::uint32_t kMagnitude = 0x7fffu;  // of a bf16's bits, which are in the order of magnitudes, NaN last
    std::uint32_t here = 0;
    for (std::int64_t i = 0; i < count; ++i) here = std::max(here, x[i].bits & kMagnitude);
    std::uint32_t seen = largest_.load();
    while (here > seen && !largest_.compare_exchange_weak(seen, here)) {
    }
  }
  float value() const { return std::bit_cast<float>(largest_.load() << 16); }

 private:
  std::atomic<std::uint32_t> largest_;
};

}  // namespace lockstep::cpu
