#include "parallel/partial_gradients.h"

#include <algorithm>
#include <set>

#include "base/integers.h"

namespace lockstep {

PartialGradients::PartialGradients(const std::vector<const UnitLayout*>& layouts, Communicator& ranks,
                                   Algorithm algorithm)
    : ranges_(layouts.size()), ranks_(ranks), how_{.algorithm = algorithm} {
  std::set<std::int64_t> sizes;
  for (std::size_t u = 0; u < layouts.size(); ++u) {
    std::vector<Range> found;
    for (std::size_t p = 0; p < layouts[u]->parameters().size(); ++p) {
      const StoredParameter& parameter = layouts[u]->parameters()[p];
      if (parameter.frozen) continue;
      const std::int64_t offset = layouts[u]->offset(static_cast<int>(p));
      for (std::size_t i = 0; i < parameter.pieces.size(); ++i) {
        const std::int64_t over = parameter.pieces[i].partial_over;
        if (over == 1) continue;
        for (const Run& run : parameter.runs_of(i)) {
          LOCKSTEP_CHECK(run.rows() == 1, "{}: partial gradients that lie apart", parameter.pieces[i].name);
          found.push_back({offset + run.here.begin, offset + run.here.end(), over});
        }
      }
    }
    std::ranges::sort(found, {}, &Range::begin);
    // Padding between two of them is zero, and stays so.
    for (const Range& range : found) {
      std::vector<Range>& all = ranges_[u];
      if (!all.empty() && all.back().over == range.over && round_up(all.back().end, kParameterAlignment) >= range.begin)
        all.back().end = range.end;
      else
        all.push_back(range);
      sizes.insert(range.over);
    }
  }
  for (const std::int64_t over : sizes)
    if (over != ranks.size())
      groups_[over] = ranks.split([n = static_cast<int>(over)](int r) { return Place{.color = r / n, .key = r}; },
                                  "copies of heads");
}

void PartialGradients::sum(int unit, const Tensor& flat) {
  std::vector<Communicator::Started> under_way;
  for (const Range& range : ranges_[static_cast<std::size_t>(unit)]) {
    Communicator& group = range.over == ranks_.size() ? ranks_ : *groups_.at(range.over);
    under_way.push_back(group.all_reduce(flat.slice(0, range.begin, range.end - range.begin), how_));
  }
  for (const Communicator::Started& one : under_way) one->wait();
}

}  // namespace lockstep
