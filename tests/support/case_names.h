// Kernel cases as the parameters of a test: every case by its name.
#pragma once
#include <gtest/gtest.h>

#include "support/kernel_cases.h"

namespace lockstep::tests {

// The indices of all cases for which `wanted` holds.
template <class Wanted>
std::vector<int> cases_where(Wanted&& wanted) {
  std::vector<int> chosen;
  for (int i = 0; i < static_cast<int>(kernel_cases().size()); ++i)
    if (wanted(kernel_cases()[i])) chosen.push_back(i);
  return chosen;
}

inline std::vector<int> all_cases() {
  return cases_where([](const KernelCase&) { return true; });
}

inline std::string case_name(const ::testing::TestParamInfo<int>& info) { return kernel_cases()[info.param].name(); }

}  // namespace lockstep::tests
