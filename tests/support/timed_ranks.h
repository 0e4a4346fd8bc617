// How long steps over a slow link take, and for how much of the link's time ranks stand waiting in them.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/median.h"
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

std::string sorted_text(std::vector<double> of);  // "0.71 0.83 0.85 "

// Whether the median of five trials of something that is timed is good; no best one is picked. As soon as three of them
// are on one side, the others would not change that. `good` is asked of every trial; what they measured is in `all`.
bool median_is_good(const std::function<double()>& trial, const std::function<bool(double)>& good,
                    std::vector<double>& all);

}  // namespace lockstep::tests
