#include "optim/rounding_map.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

std::vector<RoundingRun> rounding_map(const UnitLayout& layout) {
  std::vector<RoundingRun> all;
  for (std::size_t p = 0; p < layout.parameters().size(); ++p) {
    const StoredParameter& parameter = layout.parameters()[p];
    if (parameter.frozen) continue;
    if (parameter.tied) continue;
    for (std::size_t i = 0; i < parameter.pieces.size(); ++i) {
      const std::uint64_t key = random_key(0, "rounding/" + parameter.pieces[i].name);
      for (const Run& run : parameter.runs_of(i)) {
        const std::int64_t offset = layout.offset(static_cast<int>(p));
        if (run.elements() == 0) continue;
        all.push_back({.begin = offset + run.here.begin,
                       .end = offset + run.here.end(),
                       .pitch = run.rows() == 1 ? run.row() : run.here.pitch,
                       .from = 0,
                       .to = run.row(),
                       .key = key,
                       .element = run.there.begin,
                       .element_pitch = run.rows() == 1 ? 0 : run.there.pitch});
      }
    }
  }
  std::ranges::sort(all, {}, &RoundingRun::begin);
  // Runs that begin within row 0 of another alternate with it, row by row, and have their columns of its rows.
  for (std::size_t first = 0, i = 1; i < all.size(); ++i) {
    RoundingRun &one = all[first], &run = all[i];
    if (run.begin >= one.end) {
      first = i;
      continue;
    }
    const std::int64_t from = run.begin - one.begin;
    LOCKSTEP_CHECK(run.pitch == one.pitch && from >= all[i - 1].to && from + run.to <= one.pitch,
                   "{}: its tensors are in each other's way", layout.name());
    run.from = from;
    run.to += from;
    run.begin = one.begin;
    const std::int64_t end = std::max(one.end, run.end);
    for (std::size_t k = first; k <= i; ++k) all[k].end = end;
  }
  return all;
}

}  // namespace lockstep
