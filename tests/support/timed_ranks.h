// How long steps over a slow link take, and for how much of the link's time ranks stand waiting in them.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "train/replica.h"

namespace lockstep::tests {

// Blocks that weigh much and an embedding that weighs little: a step's first and last messages cannot be hidden.
Replica::Options heavy_blocks(const LayoutSpec& layout);

struct Times {
  double step, exposed;  // seconds: medians of some steps, of the slower rank
};

// Over links that carry so many bytes a second.
Times times_of_steps(const Replica::Options& options, double bytes_per_second);

// The share of the time that messages take which is not hidden, with and without overlap, when they take half as long
// as computing does.
struct Shown {
  double with = 1, without = 0;
};
Shown shown_of_messages(LayoutSpec layout);

// Trials of something that is timed: no best one is picked, the middle one counts, and all are told.
constexpr int kTrials = 5;

struct Trials {
  std::vector<double> sorted;

  explicit Trials(std::vector<double> of);
  double median() const { return sorted[sorted.size() / 2]; }
  std::string text() const;  // "0.71 0.83 [0.85] 0.86 0.90"
};

}  // namespace lockstep::tests
