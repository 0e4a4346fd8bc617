// The curves of a machine file (spec/machine/machine_spec.h) that come nearest to measured times: least squares of the
// logarithms, so that a product that is half as fast as the curve says counts as much as one that is twice as fast.
#pragma once
#include <cstdint>
#include <span>

#include "spec/machine/machine_spec.h"

namespace lockstep {

struct ProductTiming {
  std::int64_t m = 1, n = 1, k = 1;
  double seconds = 0;
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};
MachineSpec::Products fit_products(std::span<const ProductTiming> timings, double peak);

struct AttentionTiming {
  std::int64_t tokens = 1;                       // of a sample
  double forward = 0, backward = 0;              // seconds
  double forward_flops = 0, backward_flops = 0;  // of the pairs that see each other
};
MachineSpec::Attention fit_attention(std::span<const AttentionTiming> timings, double peak);

}  // namespace lockstep
