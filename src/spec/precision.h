// The number formats a run computes in.
#pragma once
#include <string_view>

namespace lockstep {

// What activations and the weights that compute are stored in. Master weights, moments and gradient sums are fp32, or
// fp64 in fp64 runs.
enum class Precision { fp64, fp32, bf16, fp16 };

constexpr std::string_view name_of(Precision p) {
  switch (p) {
    case Precision::fp64:
      return "fp64";
    case Precision::fp32:
      return "fp32";
    case Precision::bf16:
      return "bf16";
    case Precision::fp16:
      return "fp16";
  }
  return "?";
}

}  // namespace lockstep
