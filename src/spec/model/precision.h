// The number formats a run computes in and keeps its state in.
#pragma once
#include <array>
#include <string_view>

namespace lockstep {

// What activations and the weights that compute are stored in.
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

// What gradients are summed in, and what the optimizer's moments and the master weights are kept in.
enum class StateType {
  full,  // fp32, or fp64 in fp64 runs
  bf16   // half the bytes
};
inline constexpr std::array kStateTypes{StateType::full, StateType::bf16};

constexpr std::string_view name_of(StateType t) { return t == StateType::full ? "fp32" : "bf16"; }

// All formats of a run. Gradients and masters may be bf16 only beside weights that are: the kernels give a weight's
// gradient in its own type or in full, and a bf16 master is the weight that computes, with no copy beside it. Moments
// may be bf16 in all but fp64 runs.
struct PrecisionSpec {
  Precision compute = Precision::fp32;
  StateType gradients = StateType::full;
  StateType moments = StateType::full;
  StateType master = StateType::full;

  constexpr PrecisionSpec() = default;
  // What a run computes in, all else in full: meant to be used without a word.
  constexpr PrecisionSpec(Precision computes, StateType gradient_sums = StateType::full,
                          StateType kept_moments = StateType::full, StateType masters = StateType::full)
      : compute(computes), gradients(gradient_sums), moments(kept_moments), master(masters) {}
  bool operator==(const PrecisionSpec&) const = default;
};

}  // namespace lockstep
