#include "data/best_fit.h"

#include <bit>
#include <numeric>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {
namespace {

// Numbers in [0, count) that are in a set, with the smallest one that is at least n: a bit each, and over every 64
// words a bit that says which of them are not zero.
class OrderedSet {
 public:
  explicit OrderedSet(std::int64_t count) {
    do {
      count = ceil_div(count, 64);
      levels_.emplace_back(static_cast<std::size_t>(count));
    } while (count > 1);
  }
  void insert(std::int64_t n) {
    for (auto& level : levels_) {
      level[static_cast<std::size_t>(n / 64)] |= std::uint64_t{1} << (n % 64);
      n /= 64;
    }
  }
  void erase(std::int64_t n) {
    for (auto& level : levels_) {
      std::uint64_t& word = level[static_cast<std::size_t>(n / 64)];
      word &= ~(std::uint64_t{1} << (n % 64));
      if (word != 0) return;
      n /= 64;
    }
  }
  std::int64_t at_least(std::int64_t n) const {  // -1: none
    std::size_t up = 0;
    for (;; ++up) {
      if (up == levels_.size() || n / 64 >= std::ssize(levels_[up])) return -1;
      const std::uint64_t word = levels_[up][static_cast<std::size_t>(n / 64)] >> (n % 64);
      if (word != 0) {
        n += std::countr_zero(word);
        break;
      }
      n = n / 64 + 1;
    }
    while (up-- > 0) n = n * 64 + std::countr_zero(levels_[up][static_cast<std::size_t>(n)]);
    return n;
  }

 private:
  std::vector<std::vector<std::uint64_t>> levels_;
};

// The pieces, longest first.
std::vector<std::int64_t> by_length(std::span<const std::int32_t> lengths, std::int64_t capacity) {
  std::vector<std::int64_t> next(static_cast<std::size_t>(capacity) + 2), order(lengths.size());
  const auto slot = [&](std::int32_t length) { return static_cast<std::size_t>(capacity - length); };
  for (const std::int32_t length : lengths) {
    LOCKSTEP_CHECK(length >= 1 && length <= capacity, "a piece of {} in bins of {}", length, capacity);
    ++next[slot(length) + 1];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  for (std::size_t i = 0; i < lengths.size(); ++i)
    order[static_cast<std::size_t>(next[slot(lengths[i])]++)] = static_cast<std::int64_t>(i);
  return order;
}

}  // namespace

Packing best_fit(std::span<const std::int32_t> lengths, std::int64_t capacity) {
  LOCKSTEP_CHECK(capacity >= 1, "bins of {}", capacity);
  Packing packing{.bin = std::vector<std::int64_t>(lengths.size()), .bins = 0};
  // Bins by the room they have left: a stack each, through `below`.
  constexpr std::int64_t kNone = -1;
  std::vector<std::int64_t> top(static_cast<std::size_t>(capacity) + 1, kNone), below;
  OrderedSet rooms(capacity + 1);
  for (const std::int64_t piece : by_length(lengths, capacity)) {
    const std::int64_t length = lengths[static_cast<std::size_t>(piece)];
    std::int64_t room = rooms.at_least(length), bin;
    if (room < 0) {
      room = capacity;
      bin = packing.bins++;
      below.push_back(kNone);
    } else {
      std::int64_t& stack = top[static_cast<std::size_t>(room)];
      bin = stack;
      stack = below[static_cast<std::size_t>(bin)];
      if (stack == kNone) rooms.erase(room);
    }
    packing.bin[static_cast<std::size_t>(piece)] = bin;
    const std::int64_t left = room - length;
    if (left == 0) continue;
    std::int64_t& stack = top[static_cast<std::size_t>(left)];
    below[static_cast<std::size_t>(bin)] = stack;
    if (stack == kNone) rooms.insert(left);
    stack = bin;
  }
  return packing;
}

}  // namespace lockstep
