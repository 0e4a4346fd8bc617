#include "tensor/ranges.h"

#include <iterator>

namespace lockstep {

Ranges::Ranges(std::int64_t bytes) {
  if (bytes > 0) gaps_[0] = bytes;
}

std::int64_t Ranges::take(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    const auto [offset, size] = *gap;
    if (size < bytes) continue;
    gaps_.erase(gap);
    if (size > bytes) gaps_[offset + bytes] = size - bytes;
    return offset;
  }
  return -1;
}

void Ranges::give_back(std::int64_t offset, std::int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const auto next = gaps_.lower_bound(offset);
  if (next != gaps_.end() && next->first == offset + bytes) {
    bytes += next->second;
    gaps_.erase(next);
  }
  const auto after = gaps_.lower_bound(offset);
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  gaps_[offset] = bytes;
}

}  // namespace lockstep
