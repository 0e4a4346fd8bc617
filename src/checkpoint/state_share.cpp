#include "checkpoint/state_share.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/rows.h"

namespace lockstep {
namespace {

// How many elements of the piece come before a cut at this byte of it.
std::int64_t before_cut(const StateTensor& t, const Rows& rows, std::int64_t byte) {
  if (byte >= t.live.bytes()) return t.live.elements();
  const std::int64_t whole = std::max<std::int64_t>(byte, 0) / size_of(t.live.dtype());
  // Half a row would be a piece of its own.
  if (rows.apart() || t.live.dims() == 2) return whole / t.row * t.row;
  const std::int64_t cut = (t.begin + whole) / kParameterAlignment * kParameterAlignment;  // of the logical tensor
  return std::max<std::int64_t>(cut - t.begin, 0);
}

}  // namespace

std::vector<StateTensor> share_of_state(std::span<const StateTensor> state, int rank, int ranks) {
  LOCKSTEP_CHECK(rank >= 0 && rank < ranks, "rank {} of {}", rank, ranks);
  std::int64_t total = 0;
  for (const StateTensor& t : state) total += t.live.bytes();
  // total · rank / ranks, which does not overflow
  const auto cut = [&](int r) { return total / ranks * r + total % ranks * r / ranks; };
  const std::int64_t from = cut(rank), to = cut(rank + 1);
  std::vector<StateTensor> share;
  std::int64_t at = 0;  // bytes of the tensors before
  for (const StateTensor& t : state) {
    const Rows rows = rows_of(t);
    const std::int64_t begin = before_cut(t, rows, from - at), end = before_cut(t, rows, to - at);
    at += t.live.bytes();
    if (begin == end) continue;
    const Rows mine = rows.apart() ? rows.some(begin / rows.row, (end - begin) / rows.row)
                                   : flat_range(rows.begin + begin, rows.begin + end);
    share.push_back({.part = t.part,
                     .tensor = t.tensor,
                     .begin = mine.begin,
                     .live = elements_of(t.live, begin, end - begin),
                     .row = mine.apart() || t.live.dims() == 2 ? t.row : 0,
                     .pitch = mine.apart() || t.live.dims() == 2 ? t.pitch : 0});
  }
  return share;
}

}  // namespace lockstep
