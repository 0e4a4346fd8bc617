#include "spec/machine/machine_spec.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lockstep {

double MachineSpec::rate_of_copy(double size) const {
  LOCKSTEP_CHECK(!copies.empty(), "machine {} has no rate of a copy", name);
  const auto above = std::ranges::lower_bound(copies, size, {}, &CopyRate::size);
  if (above == copies.begin()) return copies.front().rate;
  if (above == copies.end()) return copies.back().rate;
  const CopyRate& below = *std::prev(above);
  const double way = std::log(size / below.size) / std::log(above->size / below.size);
  return below.rate + way * (above->rate - below.rate);
}

}  // namespace lockstep
