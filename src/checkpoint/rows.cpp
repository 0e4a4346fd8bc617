#include "checkpoint/rows.h"

#include <map>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {
namespace {

// Rows [top, bottom) and columns [left, right) of the tensor laid out as a grid whose width is the pitch.
struct Rectangle {
  std::int64_t top, bottom, left, right;
  std::size_t piece;
};

void add_flat(std::vector<Rectangle>& all, std::int64_t begin, std::int64_t end, std::int64_t width,
              std::size_t piece) {
  std::int64_t top = begin / width;
  const std::int64_t bottom = end / width, left = begin % width, right = end % width;
  if (top == bottom) {
    all.push_back({top, top + 1, left, right, piece});
    return;
  }
  if (left > 0) {
    all.push_back({top, top + 1, left, width, piece});
    ++top;
  }
  if (top < bottom) all.push_back({top, bottom, 0, width, piece});
  if (right > 0) all.push_back({bottom, bottom + 1, 0, right, piece});
}

// Rows that cross the edge of the grid continue at its other side, a row further down.
void add_rows(std::vector<Rectangle>& all, const StridedRange& rows, std::int64_t width, std::size_t piece) {
  const std::int64_t top = rows.begin / width, left = rows.begin % width, right = left + rows.row;
  all.push_back({top, top + rows.rows, left, std::min(right, width), piece});
  if (right > width) all.push_back({top + 1, top + 1 + rows.rows, 0, right - width, piece});
}

// The first columns that none of the rectangles has, which are apart and in order.
std::pair<std::int64_t, std::int64_t> first_hole(const std::map<std::int64_t, const Rectangle*>& active,
                                                 std::int64_t width) {
  std::int64_t next = 0;
  for (const auto& [left, rectangle] : active) {
    if (left > next) return {next, left};
    next = rectangle->right;
  }
  return {next, width};
}

}  // namespace

StridedRange rows_of(const StateTensor& piece) {
  const Tensor& live = piece.live;
  const StridedRange& range = piece.range;
  const std::int64_t held = live.elements(), elements = piece.tensor.elements();
  const bool by_rows = live.dims() == 2 && live.dim(1) == range.row && live.stride(1) == 1;
  LOCKSTEP_CHECK(((live.dims() == 1 && live.contiguous()) || by_rows) && is_float(live.dtype()),
                 "{} of '{}': {} is no flat float tensor", piece.part, piece.tensor.name, live.shape());
  LOCKSTEP_CHECK(range.row >= 0 && range.rows >= 0 && checked_mul(range.rows, range.row) == held &&
                     (range.rows <= 1 || range.pitch >= range.row),
                 "{} of '{}': {} elements in {} rows of {}, {} apart", piece.part, piece.tensor.name, held, range.rows,
                 range.row, range.pitch);
  const auto skipped =
      range.apart() ? checked_mul(range.rows - 1, range.pitch - range.row) : std::optional<std::int64_t>(0);
  LOCKSTEP_CHECK(range.begin >= 0 && skipped && held <= elements && *skipped <= elements - held &&
                     range.begin <= elements - held - *skipped,
                 "{} of '{}': {} elements from {} on, in rows of {}, {} apart, are not within its {}", piece.part,
                 piece.tensor.name, held, range.begin, range.row, range.pitch, elements);
  return range.joined();
}

Tensor elements_of(const Tensor& live, std::int64_t begin, std::int64_t count) {
  if (live.dims() == 1) return live.slice(0, begin, count);
  const std::int64_t row = live.dim(1);
  LOCKSTEP_CHECK(begin % row == 0 && count % row == 0, "{} elements from {} on are no rows of {}", count, begin, row);
  return live.slice(0, begin / row, count / row);
}

std::optional<CoverFault> find_cover_fault(std::span<const StridedRange> pieces, std::int64_t elements) {
  if (elements == 0) return std::nullopt;
  std::int64_t width = elements;  // flat ranges alone: a grid of one row
  for (const StridedRange& piece : pieces)
    if (piece.apart()) width = piece.pitch;
  const std::int64_t height = ceil_div(elements, width);

  std::vector<Rectangle> rectangles;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].apart())
      add_rows(rectangles, pieces[i], width, i);
    else if (pieces[i].rows > 0)
      add_flat(rectangles, pieces[i].begin, pieces[i].end(), width, i);
  }
  // What the last row of the grid has past the end of the tensor: no piece reaches it.
  if (elements % width > 0) rectangles.push_back({height - 1, height, elements % width, width, pieces.size()});

  // Down the rows: where a rectangle begins it must meet no other, and between beginnings and ends nothing changes.
  struct Event {
    std::int64_t row;
    bool begins;  // of one row, what ends there goes first
    const Rectangle* rectangle;
  };
  std::vector<Event> events;
  for (const Rectangle& r : rectangles) {
    events.push_back({r.top, true, &r});
    events.push_back({r.bottom, false, &r});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.row, a.begins, a.rectangle) < std::tie(b.row, b.begins, b.rectangle);
  });
  std::map<std::int64_t, const Rectangle*> active;  // by the left edge
  std::int64_t filled = 0;                          // columns
  std::size_t next = 0;
  for (std::int64_t row = 0; row < height; row = events[next].row) {
    for (; next < events.size() && events[next].row == row; ++next) {
      const Rectangle& r = *events[next].rectangle;
      if (!events[next].begins) {
        active.erase(r.left);
        filled -= r.right - r.left;
        continue;
      }
      const auto after = active.lower_bound(r.left);
      const Rectangle* met = after != active.end() && after->first < r.right ? after->second : nullptr;
      if (after != active.begin() && std::prev(after)->second->right > r.left) met = std::prev(after)->second;
      if (met)
        return CoverFault{.begin = row * width + std::max(r.left, met->left),
                          .end = row * width + std::min(r.right, met->right),
                          .twice_in = r.piece};
      active.emplace(r.left, &r);
      filled += r.right - r.left;
    }
    if (filled == width) continue;
    const auto [left, right] = first_hole(active, width);
    // Of rows without anything, all that follow.
    const std::int64_t end_row = active.empty() && next < events.size() ? events[next].row - 1 : row;
    const std::int64_t end = active.empty() && next == events.size() ? elements : end_row * width + right;
    return CoverFault{.begin = row * width + left, .end = std::min(end, elements), .twice_in = {}};
  }
  return std::nullopt;
}

}  // namespace lockstep
