// How the learning rate moves over a run, as plain data; optim/learning_rate.h gives its value at a step.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

// wsd: warm-up, stable, decay. The rate stays at its peak until the last `decay` steps.
enum class RateKind { constant, linear, cosine, wsd };

inline constexpr std::array kRateKinds{RateKind::constant, RateKind::linear, RateKind::cosine, RateKind::wsd};

struct LearningRateSpec {
  RateKind kind = RateKind::cosine;
  std::int64_t warmup = 0;  // steps of the linear rise to the peak
  std::int64_t decay = 0;   // wsd: steps of the final fall
  double final = 0.1;       // the last step's rate as a share of the peak; constant has no use for it
  bool operator==(const LearningRateSpec&) const = default;
};

constexpr std::string_view name_of(RateKind kind) {
  switch (kind) {
    case RateKind::constant:
      return "constant";
    case RateKind::linear:
      return "linear";
    case RateKind::cosine:
      return "cosine";
    case RateKind::wsd:
      return "wsd";
  }
  return "?";
}

}  // namespace lockstep
