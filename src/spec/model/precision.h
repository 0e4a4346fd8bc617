// The number formats a run computes in and keeps its state in.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

// What activations and the weights that compute are stored in. fp8: in bf16, and the products of blocks are computed of
// their 8-bit roundings (model/fp8_products.h).
enum class Precision { fp64, fp32, bf16, fp16, fp8 };

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
    case Precision::fp8:
      return "fp8";
  }
  return "?";
}

// Whether the weights that kernels read are bf16.
constexpr bool computes_in_bf16(Precision p) { return p == Precision::bf16 || p == Precision::fp8; }

// What gradients are summed in, and what the optimizer's moments and the master weights are kept in.
enum class StateType {
  full,  // fp32, or fp64 in fp64 runs
  bf16   // half the bytes
};
inline constexpr std::array kStateTypes{StateType::full, StateType::bf16};

constexpr std::string_view name_of(StateType t) { return t == StateType::full ? "fp32" : "bf16"; }

// What the gradient of the loss is multiplied by, so that fp16, whose smallest number is 2^-24, does not lose small
// gradients. Always a power of two: gradients are divided by it, before norm, clipping and update, without rounding.
struct LossScale {
  enum class Kind {
    none,    // 1
    fixed,   // one number
    dynamic  // halved by a step whose gradients overflow, which updates nothing; doubled after `growth` others
  };
  static constexpr int kFirst = 16, kMost = 32;  // powers of two: where a dynamic one begins, and the largest

  Kind kind = Kind::none;
  int exponent = 0;            // of two; of a fixed one
  std::int64_t growth = 2000;  // steps; of a dynamic one
  constexpr int first() const { return kind == Kind::dynamic ? kFirst : exponent; }
  bool operator==(const LossScale&) const = default;
};

// How far a run has come with it: what a checkpoint keeps.
struct LossScaleState {
  int exponent = 0;        // of two, of the next step
  std::int64_t steps = 0;  // since it last changed, that updated
  bool operator==(const LossScaleState&) const = default;
};

// All formats of a run. Gradients and masters may be bf16 only beside weights that are: the kernels give a weight's
// gradient in its own type or in full, and a bf16 master is the weight that computes, with no copy beside it. Moments
// may be bf16 in all but fp64 runs. Only fp16 runs scale the loss.
struct PrecisionSpec {
  Precision compute = Precision::fp32;
  StateType gradients = StateType::full;
  StateType moments = StateType::full;
  StateType master = StateType::full;
  LossScale loss_scale = {};

  constexpr PrecisionSpec() = default;
  // What a run computes in, all else in full, fp16 with a dynamic scale: meant to be used without a word.
  constexpr PrecisionSpec(Precision computes, StateType gradient_sums = StateType::full,
                          StateType kept_moments = StateType::full, StateType masters = StateType::full)
      : compute(computes), gradients(gradient_sums), moments(kept_moments), master(masters) {
    if (computes == Precision::fp16) loss_scale.kind = LossScale::Kind::dynamic;
  }
  bool operator==(const PrecisionSpec&) const = default;
};

}  // namespace lockstep
