// How long steps over a slow link take, and how long ranks stand waiting in them.
#pragma once
#include "train/replica.h"

namespace lockstep::tests {

// Blocks that weigh much and an embedding that weighs little: a step's first and last messages cannot be hidden.
Replica::Options heavy_blocks(const LayoutSpec& layout);

struct Times {
  double step = 1e30, waited = 1e30;  // the least of some steps: a machine with other work is slower, never faster
};

// Of the slower rank, over links that carry so many bytes a second.
Times times_of_steps(const Replica::Options& options, double bytes_per_second);

// What of the time that messages take is seen as waiting, with and without overlap, when they take half as long as
// computing does.
struct Shown {
  double with = 1, without = 0;
};
Shown shown_of_messages(LayoutSpec layout);

}  // namespace lockstep::tests
