// Ranges of one block of bytes, taken and given back: the lowest gap that is large enough comes first.
//
// It knows offsets only; whoever owns the block adds its address. Thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>

namespace lockstep {

class Ranges {
 public:
  explicit Ranges(std::int64_t bytes);
  std::int64_t take(std::int64_t bytes);  // its offset; -1: no gap is large enough
  void give_back(std::int64_t offset, std::int64_t bytes) noexcept;

 private:
  std::mutex mutex_;
  std::map<std::int64_t, std::int64_t> gaps_;  // offset to bytes; no two touch
};

}  // namespace lockstep
