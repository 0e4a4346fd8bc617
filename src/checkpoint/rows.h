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

#include "base/strided_range.h"
#include "checkpoint/state.h"

namespace lockstep {

// The range of the piece, joined where nothing is between its rows. ProgramError when the piece breaks its contract
// (state.h) or leaves its tensor.
StridedRange rows_of(const StateTensor& piece);

// Elements [begin, begin + count) of a piece; whole rows, where its rows are strided here.
Tensor elements_of(const Tensor& live, std::int64_t begin, std::int64_t count);

// What is wrong with pieces that ought to hold each of a tensor's elements once: the flat range [begin, end) is in
// none, or is in the piece of this index and in another one too. There may be more of the kind; this is the one of the
// lowest row.
struct CoverFault {
  std::int64_t begin = 0, end = 0;
  std::optional<std::size_t> twice_in;
};
// Nothing when there is no fault. The pieces are joined and within [0, elements), and those of several rows have one
// pitch. Takes
// n log n steps for n pieces, whatever their sizes.
std::optional<CoverFault> find_cover_fault(std::span<const StridedRange> pieces, std::int64_t elements);

// Calls run(to, from, count) for each stretch of elements that both hold, ascending: `count` elements from number `to`
// of those of `into`, and number `from` of those of `source`, on. Takes at most some steps for each row of the one that
// has fewer, whatever the pitches.
template <class Run>
void each_common_run(const StridedRange& into, const StridedRange& source, Run&& run) {
  // The first row that ends behind `place`, where another one ends before it.
  const auto row_behind = [](const StridedRange& of, std::int64_t place) {
    return (place - of.begin - of.row) / of.pitch + 1;
  };
  for (std::int64_t i = 0, j = 0; i < into.rows && j < source.rows;) {
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
