// Elements of a flat sequence: rows of one length, each beginning one pitch after the row before it.
//
// A contiguous range is one row. Some columns of a matrix are a row of each of its rows, and their pitch is the width
// of the matrix.
#pragma once
#include <cstdint>

namespace lockstep {

struct StridedRange {
  std::int64_t begin = 0;  // the first element
  std::int64_t row = 0;    // elements of a row
  std::int64_t pitch = 0;  // from the beginning of a row to that of the next; means nothing with one row
  std::int64_t rows = 0;

  constexpr std::int64_t elements() const { return rows * row; }
  constexpr std::int64_t end() const { return rows == 0 ? begin : begin + (rows - 1) * pitch + row; }
  // Whether there are elements of others between the rows.
  constexpr bool apart() const { return rows > 1 && pitch != row; }
  // Where in the sequence element i of the range is; of a range that has elements.
  constexpr std::int64_t at(std::int64_t i) const { return begin + i / row * pitch + i % row; }
  // Rows [first, first + many).
  constexpr StridedRange some(std::int64_t first, std::int64_t many) const;
  // The same elements, as one row where nothing is between them.
  constexpr StridedRange joined() const;
  bool operator==(const StridedRange&) const = default;
};

// Elements [begin, end): one row whose pitch is its length, or none.
constexpr StridedRange flat_range(std::int64_t begin, std::int64_t end) {
  return {.begin = begin, .row = end - begin, .pitch = end - begin, .rows = end > begin ? 1 : 0};
}

constexpr StridedRange StridedRange::some(std::int64_t first, std::int64_t many) const {
  const std::int64_t from = begin + first * pitch;
  return many > 1 ? StridedRange{from, row, pitch, many} : flat_range(from, from + many * row);
}

constexpr StridedRange StridedRange::joined() const { return apart() ? *this : flat_range(begin, begin + elements()); }

}  // namespace lockstep
