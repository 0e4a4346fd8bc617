// The time of a quick call: of times on a machine that does other things too, which make some longer and none shorter.
#pragma once
#include <algorithm>
#include <vector>

namespace lockstep {

// The value that a quarter of them are below; of none, 0.
inline double lower_quartile(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto quarter = values.begin() + std::ssize(values) / 4;
  std::ranges::nth_element(values, quarter);
  return *quarter;
}

}  // namespace lockstep
