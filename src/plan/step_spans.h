// When one rank's actions began and ended, step by step, at the cost of two clock reads per action.
//
// Ranks of one process have one clock, so their spans can be compared. One thread uses it.
#pragma once
#include <chrono>
#include <vector>

#include "train/step_watch.h"

namespace lockstep {

class StepSpans final : public StepWatch {
 public:
  struct Span {
    std::size_t action;  // in the rank's list
    double begin, end;   // seconds; from when it has what it needs
  };
  using Step = std::vector<Span>;

  void begin_step() { steps_.emplace_back(); }
  const std::vector<Step>& steps() const { return steps_; }

  void comes_to(std::size_t index) override { action_ = index; }
  void runs(const Action&) override { began_ = now(); }
  void is_done_with(const Action&) override { steps_.back().push_back({action_, began_, now()}); }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  std::size_t action_ = 0;
  double began_ = 0;
  std::vector<Step> steps_;
};

}  // namespace lockstep
