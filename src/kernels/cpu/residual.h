// Adds a residual before a norm.
#pragma once
#include "kernels/cpu/simd.h"

namespace lockstep::cpu {

// sum = x + residual, over one row. The norm then reads the sum as it was stored, rounding and all, since that is what
// backward will read.
template <class S>
const S* join_residual(S* sum, const S* x, const S* residual, std::int64_t columns) {
  for_vectors<Compute<S>>(
      columns, [&](std::int64_t i, auto load, auto store) { store(sum + i, load(x + i) + load(residual + i)); });
  return sum;
}

}  // namespace lockstep::cpu
