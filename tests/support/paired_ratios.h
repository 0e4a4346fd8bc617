// What something costs, from pairs of steps with and without it, in turn, in one process.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::tests {

// The median of the ratios, and its upper 95% confidence limit by order statistics: no assumption about noise.
struct PairedRatios {
  double median, limit;
};

inline PairedRatios paired_ratios(std::vector<double> ratios) {
  std::ranges::sort(ratios);
  const double n = static_cast<double>(ratios.size());
  return {.median = ratios[ratios.size() / 2],
          .limit = ratios[static_cast<std::size_t>(n / 2 + 1.645 * std::sqrt(n) / 2)]};
}

}  // namespace lockstep::tests
