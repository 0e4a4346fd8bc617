// Which elements dropout keeps, by logical index: four neighbouring columns share one Philox call.
#pragma once
#include <cmath>
#include <cstdint>

#include "base/philox.h"

namespace lockstep::cpu {

class DropoutMask {
 public:
  DropoutMask(std::uint64_t key, double probability)
      : key_(key), threshold_(static_cast<std::uint64_t>(std::llround(probability * 0x1p32))) {}

  // A reader of one row: keep(column) for any column, cheapest in ascending order.
  class Row {
   public:
    bool operator()(std::int64_t column) {
      if (column >> 2 != group_) {
        group_ = column >> 2;
        words_ = philox(key_, (static_cast<std::uint64_t>(low_) << 32) | static_cast<std::uint64_t>(group_), high_);
      }
      return words_[column & 3] >= threshold_;
    }

   private:
    friend class DropoutMask;
    Row(std::uint64_t key, std::uint64_t threshold, std::uint64_t high, std::uint32_t low)
        : key_(key), threshold_(threshold), high_(high), low_(low) {}
    std::uint64_t key_, threshold_, high_;
    std::uint32_t low_;
    std::int64_t group_ = -1;
    Philox4 words_{};
  };

  // The row of a sample (below 2^40; attention adds the head above that) and a position.
  Row row(std::int64_t sample, std::int64_t position) const {
    return Row(key_, threshold_, static_cast<std::uint64_t>(sample), static_cast<std::uint32_t>(position));
  }

 private:
  std::uint64_t key_, threshold_;
};

}  // namespace lockstep::cpu
