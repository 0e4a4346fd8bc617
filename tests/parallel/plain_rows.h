// Rows of plain numbers as a tensor.
#pragma once
#include <vector>

#include "tensor/tensor.h"

namespace lockstep::tests {

inline Tensor rows(std::vector<double>& values, std::int64_t width) {
  return {values.data(), DType::f64, Device::cpu, {std::ssize(values) / width, width}};
}

}  // namespace lockstep::tests
