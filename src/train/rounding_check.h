// Whether a layout's steps are one rank's steps but for rounding, where rounding is too large for a fixed tolerance.
//
// Each step of the layout is taken by itself, from the layout's own weights, so that what training makes of rounding
// (Adam divides a gradient by its own size) does not count:
//
//   gradients  The truth g is one rank's gradient in fp64 at the same weights on the same batch. One rank's gradient in
//              the run's precision, g1, says how far rounding takes a tensor from it. The layout's, gL, may be no more
//              than kTimesInAll times as far in the 2-norm and kTimesAnywhere times in the largest element:
//                  |gL - g| <= times * max(|g1 - g|, u |g|),   |g1 - g| over |all g| the largest of the steps,
//              and u the rounding of the type in which gradients are kept. A tensor whose true gradient is zero is held
//              to its noise, silently.
//   loss       |lL - l| <= times * max(|l1 - l| of any step, h |l|), where h = |all g1 - all g| / |all g|: rounding
//   that
//              reaches the loss has reached the gradients.
//   update     One rank in the run's precision is given the layout's gradients in the place of its own and updates: its
//              weights must be the layout's, bit for bit, since an update does not depend on how tensors are split, and
//              its norm but for the rounding of sums of 256 in fp64 (where that differs, the clipping factor does, and
//              weights may be off by some units in the last place).
//
// So equal steps follow by induction: right gradients at these weights, and of them the right next weights. The two
// factors allow for twice as many roundings as one rank's (1.4 times the error) and for chance. bench/results has how
// often they were exceeded by correct layouts (never), and how small an error shows.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/trial_steps.h"

namespace lockstep {

inline constexpr double kTimesInAll = 3, kTimesAnywhere = 6;
// Up to this many times what is allowed, fp64 decides; beyond, it is an error.
inline constexpr double kUndecided = 4;

struct RoundingVerdict {
  double share = 0;  // the largest error as a share of what is allowed
  struct Worst {
    std::int64_t step;  // from 1
    std::string what;
    double error;  // relative
    std::int64_t elements;
  };
  std::optional<Worst> worst;  // of the first step that has more than it may; nothing: all is rounding
  bool certain = false;        // of that: beyond what fp64 would have to decide
  // The relative error of a whole gradient tensor that would show: of the middle tensor, and of the bluntest.
  double sees = 0, sees_at_worst = 0;
  std::string bluntest;
};

// The steps are one copy of what the layout computed.
RoundingVerdict check_rounding(const RunSpec& run, const LayoutSpec& layout, std::span<const TrialStep> steps);

}  // namespace lockstep
