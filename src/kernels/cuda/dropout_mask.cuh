// Which elements dropout keeps, by logical index: the same bits as kernels/cpu/dropout_mask.h gives.
#pragma once
#include <cmath>
#include <cstdint>

#include "base/philox.h"

namespace lockstep::cuda {

class DropoutMask {
 public:
  DropoutMask(std::uint64_t key, double probability)
      : key_(key), threshold_(static_cast<std::uint64_t>(std::llround(probability * 0x1p32))) {}

  // A reader of one row: keep(column) for any column, cheapest in ascending order.
  class Row {
   public:
    __device__ bool operator()(std::int64_t column) {
      if (column >> 2 != group_) {
        group_ = column >> 2;
        words_ = philox(key_, (static_cast<std::uint64_t>(low_) << 32) | static_cast<std::uint64_t>(group_), high_);
      }
      // Chosen, not indexed: an array indexed at run time would live in memory.
      const std::uint32_t even = column & 2 ? words_[2] : words_[0], odd = column & 2 ? words_[3] : words_[1];
      return (column & 1 ? odd : even) >= threshold_;
    }

   private:
    friend class DropoutMask;
    __device__ Row(std::uint64_t key, std::uint64_t threshold, std::uint64_t high, std::uint32_t low)
        : key_(key), threshold_(threshold), high_(high), low_(low) {}
    std::uint64_t key_, threshold_, high_;
    std::uint32_t low_;
    std::int64_t group_ = -1;
    Philox4 words_{};
  };

  // The row of a sample (below 2^40; attention adds the head above that) and a position.
  __device__ Row row(std::int64_t sample, std::int64_t position) const {
    return Row(key_, threshold_, static_cast<std::uint64_t>(sample), static_cast<std::uint32_t>(position));
  }

 private:
  std::uint64_t key_, threshold_;
};

}  // namespace lockstep::cuda
