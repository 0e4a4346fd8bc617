// The value in the middle: what a measurement reports, since one slow try does not move it.
#pragma once
#include <algorithm>
#include <vector>

namespace lockstep {

// Of an even number, the mean of the two in the middle; of none, 0.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace lockstep
