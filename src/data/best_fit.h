// Best-fit packing: pieces into bins of one capacity, the longest first, each into the fullest bin that has room.
//
// Pieces of equal length go in their order, and of bins that are equally full the one filled last is taken: the result
// is a function of the lengths alone. Time is linear in pieces but for a search of a few words each; memory is some
// words per piece.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

struct Packing {
  std::vector<std::int64_t> bin;  // of each piece, in [0, bins)
  std::int64_t bins = 0;
};

// Lengths in [1, capacity].
Packing best_fit(std::span<const std::int32_t> lengths, std::int64_t capacity);

}  // namespace lockstep
