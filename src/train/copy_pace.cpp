#include "train/copy_pace.h"

#include <algorithm>
#include <cmath>

#include "base/median.h"
#include "spec/run/run_spec.h"

namespace lockstep {

bool CopyPace::wants(std::int64_t step) const {
  if (every_ == 0) return false;
  return step - last_ >= (every_ == kCopyAuto ? 2 : every_);
}

std::optional<CopyPace::Choice> CopyPace::stepped(double seconds, bool copied) {
  if (every_ != kCopyAuto) return std::nullopt;
  if (copied && warm_ < kWarm) {
    ++warm_;
    return std::nullopt;
  }
  if (warm_ < kWarm) return std::nullopt;
  (copied ? with_ : without_).push_back(seconds);
  measured_ += seconds;
  const std::size_t least = std::min(with_.size(), without_.size());
  if (least < kLeast || (least < kMost && measured_ < kSeconds)) return std::nullopt;
  Choice choice{.every = 1, .step_seconds = median(without_), .copy_seconds = 0};
  choice.copy_seconds = std::max(0.0, median(with_) - choice.step_seconds);
  choice.every =
      std::max<std::int64_t>(1, std::llround(std::ceil(choice.copy_seconds / (kMostShare * choice.step_seconds))));
  every_ = choice.every;
  return choice;
}

}  // namespace lockstep
