// How a cache of keys and values is sharded over ranks, as one of them sees it.
//
// Tokens are read in runs. A run is kept whole by the rank that has the fewest rows so far, the first of several such.
// Every rank counts for all of them, so that none must ask another. A group of one keeps everything.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep {

class CacheSplit {
 public:
  CacheSplit(std::int64_t rank, std::int64_t ranks)
      : rank_(static_cast<std::size_t>(rank)), rows_(static_cast<std::size_t>(ranks)) {}

  std::int64_t ranks() const { return std::ssize(rows_); }
  std::int64_t rows() const { return rows_[rank_]; }  // that this rank has
  bool keeps() const { return keeper() == rank_; }    // the run that is read next
  void add(std::int64_t run) { rows_[keeper()] += run; }
  void clear() { std::ranges::fill(rows_, 0); }

  // Rows that a rank must have room for, if runs are of at most `longest` tokens and `all` together. Whoever keeps the
  // last of its runs had at most an equal part of what was read before, and there are runs that come to just this.
  static constexpr std::int64_t room(std::int64_t all, std::int64_t longest, std::int64_t ranks) {
    return (all - longest) / ranks + longest;
  }

 private:
  std::size_t keeper() const { return static_cast<std::size_t>(std::ranges::min_element(rows_) - rows_.begin()); }

  std::size_t rank_;
  std::vector<std::int64_t> rows_;  // by rank
};

}  // namespace lockstep
