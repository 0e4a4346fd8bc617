// After which steps the state is copied into memory: every k-th, as told, or as what a copy costs allows.
//
// Where that is to be measured, steps with and without a copy take turns from the first on. What a copy costs is the
// difference of their medians, everything included: the snapshot, the work of writing beside the step, and what the
// step waits for it. The state is then copied after every k-th step, with the least k by which copies take at most
// kMostShare of the time: 1 where they hide. Until that is known a copy is made after every second step.
//
// Rank 0's; plain data.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

class CopyPace {
 public:
  static constexpr double kMostShare = 0.02;
  static constexpr int kWarm = 3;            // copies and steps that are not counted: caches and memory are new
  static constexpr std::size_t kLeast = 12;  // steps of each kind, and more until they have taken kSeconds
  static constexpr std::size_t kMost = 200;
  static constexpr double kSeconds = 2;

  // `every`: steps; kCopyAuto (spec/run/run_spec.h): as measured. `step`: where the run begins.
  CopyPace(std::int64_t every, std::int64_t step) : every_(every), last_(step) {}

  // Whether the state after this step is to be copied before the next begins. The same until one of the two below.
  bool wants(std::int64_t step) const;
  void copied(std::int64_t step) { last_ = step; }
  // A step has taken so long, with what came before it since the last one; whether a copy was made before it.
  // Returns the choice, once.
  struct Choice {
    std::int64_t every = 1;
    double step_seconds = 0;  // without a copy
    double copy_seconds = 0;  // that a copy adds
  };
  std::optional<Choice> stepped(double seconds, bool copied);
  std::int64_t every() const { return every_; }  // kCopyAuto: not known yet

 private:
  std::int64_t every_, last_;
  int warm_ = 0;
  double measured_ = 0;  // seconds, of those that count
  std::vector<double> with_, without_;
};

}  // namespace lockstep
