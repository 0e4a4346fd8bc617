// How the ranks of a tensor-parallel group split the layers of a model, as one of them sees it.
//
// Heads, feed-forward width and vocabulary are split into equal parts, the last ones padded, along what a product gives
// or sums over. With `sequence` (sequence parallelism) the rows (tokens) of everything between products are split too,
// as evenly as they go: the first ranks have one more where they do not divide. Norms, residuals and dropout go row by
// row, so any rank may have any rows: rows are exchanged in pieces, and each piece of consecutive rows is split by
// itself, so that one range of memory is one message. A group of one has all of everything.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/integers.h"

namespace lockstep {

// The elements [first, first + count) of `all`, in room for `each`.
struct Part {
  std::int64_t all, first, count, each;
  static constexpr Part whole(std::int64_t n) { return {n, 0, n, n}; }
};

struct TensorSplit {
  std::int64_t rank = 0, size = 1;
  bool sequence = false;      // rows between products are split too
  std::int64_t pieces = 1;    // at most, in which rows are exchanged
  std::int64_t together = 1;  // rows of a rank that no piece but the last one splits

  Part part(std::int64_t all) const {
    const std::int64_t each = ceil_div(all, size), first = std::min(rank * each, all);
    return {all, first, std::min(each, all - first), each};
  }
  // Of N rows: how many this rank has between products, and in how many pieces they are exchanged.
  std::int64_t own_rows(std::int64_t rows) const { return sequence ? rows / size + (rank < rows % size) : rows; }
  std::int64_t pieces_of(std::int64_t rows) const {
    return std::min(pieces, std::max<std::int64_t>((sequence ? rows / size : rows) / together, 1));
  }
  // Rows [first, first + count) of all; this rank's begin at `mine`, and are [own_first, own_first + own_count) of
  // those that it has. Every rank has equally many of a piece, except of the last one where rows do not divide.
  struct RowPiece {
    std::int64_t first, count, mine, own_first, own_count;
  };
  RowPiece piece(std::int64_t rows, std::int64_t p) const {
    const std::int64_t n = pieces_of(rows), ranks = sequence ? size : 1, each = rows / ranks;
    const bool last = p + 1 == n;
    const std::int64_t begin = each * p / n / together * together,
                       end = last ? each : each * (p + 1) / n / together * together, more = last ? rows % ranks : 0;
    const std::int64_t place = sequence ? rank : 0;
    return {.first = begin * ranks,
            .count = (end - begin) * ranks + more,
            .mine = begin * ranks + place * (end - begin) + std::min(place, more),
            .own_first = begin,
            .own_count = end - begin + (place < more)};
  }
};

// A rank's query heads, and the key/value heads that these read: a part of them, or, where there are fewer than ranks,
// one that several ranks have.
struct HeadSplit {
  Part queries, keys;
  std::int64_t copies = 1;  // consecutive ranks that have the same key/value heads

  HeadSplit(std::int64_t heads, std::int64_t kv_heads, const TensorSplit& split)
      : queries(split.part(heads)), keys(split.part(kv_heads)) {
    if (kv_heads >= split.size) return;
    copies = split.size / kv_heads;
    keys = {kv_heads, split.rank / copies, 1, 1};
  }
};

// Whether heads can be split so: query heads evenly, key/value heads evenly or each to as many ranks.
constexpr bool heads_divide(std::int64_t heads, std::int64_t kv_heads, std::int64_t ranks) {
  return heads % ranks == 0 && (kv_heads % ranks == 0 || ranks % kv_heads == 0);
}

}  // namespace lockstep
