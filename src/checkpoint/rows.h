// Which elements of a logical tensor a piece of it holds: rows of one length, starting one pitch apart.
//
// A flat range is one row. A rank that has columns of a matrix has a part of every row of it; where ZeRO splits such a
// part in the middle of a row, a flat range comes before the rows and another after them. So a tensor is whole when
// flat ranges and rows, mixed, hold each element once, and what was saved as one can be loaded as the other.
//
// Plain arithmetic on numbers of rows, never on elements: the cost depends on the number of pieces, not on the matrix.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "checkpoint/state.h"

namespace lockstep {

// Row i is the flat range [begin + i·pitch, begin + i·pitch + row). Of one row, or none, the pitch is its length; of
// several it is more: rows without a space between them are one row.
struct Rows {
  std::int64_t begin = 0, row = 0, pitch = 0, count = 0;

  bool apart() const { return count > 1; }
  std::int64_t elements() const { return count * row; }
  std::int64_t end() const { return count == 0 ? begin : begin + (count - 1) * pitch + row; }
  Rows some(std::int64_t first, std::int64_t many) const;  // of the rows
  bool operator==(const Rows&) const = default;
};

Rows flat_range(std::int64_t begin, std::int64_t end);
// ProgramError when the piece breaks its contract (state.h) or leaves its tensor.
Rows rows_of(const StateTensor& piece);

// Elements [begin, begin + count) of a piece; whole rows, where its rows are strided here.
Tensor elements_of(const Tensor& live, std::int64_t begin, std::int64_t count);

// What is wrong with pieces that ought to hold each of a tensor's elements once: the flat range [begin, end) is in
// none, or is in the piece of this index and in another one too. There may be more of the kind; this is the one of the
// lowest row.
struct CoverFault {
  std::int64_t begin = 0, end = 0;
  std::optional<std::size_t> twice_in;
};
// Nothing when there is no fault. The pieces are within [0, elements), and those of several rows have one pitch. Takes
// n log n steps for n pieces, whatever their sizes.
std::optional<CoverFault> find_cover_fault(std::span<const Rows> pieces, std::int64_t elements);

// Calls run(to, from, count) for each stretch of elements that both hold, ascending: `count` elements from number `to`
// of those of `into`, and number `from` of those of `source`, on. Takes at most some steps for each row of the one that
// has fewer, whatever the pitches.
template <class Run>
void each_common_run(const Rows& into, const Rows& source, Run&& run) {
  // The first row that ends after `place`, where another one ends before it.
  const auto row_behind = [](const Rows& of, std::int64_t place) { return (place - of.begin - of.row) / of.pitch + 1; };
  for (std::int64_t i = 0, j = 0; i < into.count && j < source.count;) {
    const std::int64_t a = into.begin + i * into.pitch, b = source.begin + j * source.pitch;
    const std::int64_t a_end = a + into.row, b_end = b + source.row;
    if (a_end <= b) {
      i = row_behind(into, b);
    } else if (b_end <= a) {
      j = row_behind(source, a);
    } else {
      const std::int64_t from = std::max(a, b), to = std::min(a_end, b_end);
      run(i * into.row + from - a, j * source.row + from - b, to - from);
      (a_end <= b_end ? i : j) += 1;
    }
  }
}

}  // namespace lockstep
