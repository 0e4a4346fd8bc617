// How the learning rate moves over a run, as plain data; optim/learning_rate.h gives its value at a step.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

// wsd: warm-up, stable, decay. The rate stays at its peak until the last `decay` steps.
enum class ScheduleKind { constant, linear, cosine, wsd };

inline constexpr std::array kScheduleKinds{ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine,
                                           ScheduleKind::wsd};

struct ScheduleSpec {
  ScheduleKind kind = ScheduleKind::cosine;
  std::int64_t warmup = 0;  // steps of the linear rise to the peak
  std::int64_t decay = 0;   // wsd: steps of the final fall
  double final = 0.1;       // the last step's rate as a share of the peak; constant has no use for it
  bool operator==(const ScheduleSpec&) const = default;
};

constexpr std::string_view name_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::constant:
      return "constant";
    case ScheduleKind::linear:
      return "linear";
    case ScheduleKind::cosine:
      return "cosine";
    case ScheduleKind::wsd:
      return "wsd";
  }
  return "?";
}

}  // namespace lockstep
