// How fast this machine runs a model, beside what it could do at most: every rate comes with the ceiling measured in
// the same run.
//
// The ceilings are multiply-adds in registers (on a GPU: one large product, by its library) and the copying of memory.
// Matrix products and attention are held to the first, everything else to the second. Then the run's own step: its
// useful work per second, held to the rate of its weights' products run alone, one after the other; and its time, held
// to the floor that the same libraries leave: its weights' products and its attention at the times measured for them
// alone, and the bytes that all other kernels must read and write (as meta counts them, with nothing computed twice) at
// the speed of a copy. A ratio of times says how far above the floor a step is. Machines are noisy: steps and products
// alternate, the first rounds do not count, medians are reported, and the step's ratio to its products is the median of
// the ratios of neighbours.
#pragma once
#include <string>
#include <vector>

#include "spec/run/run_spec.h"

namespace lockstep {

struct BenchItem {
  std::string name;
  double value;
  std::string unit;  // "GFLOP/s", "GB/s", "tokens/s", "ms", …
  double ceiling;    // in the same unit (of a time: its floor); 0: it has none
  double ratio() const { return ceiling > 0 ? value / ceiling : 0; }
};

struct Bench {
  std::vector<BenchItem> items;
  TuningSpec tuning;  // the algorithms that the step and its products had, where some were chosen by timing
};

// `rounds`: how many times steps and their products are timed.
Bench run_bench(const RunSpec& spec, int rounds);

}  // namespace lockstep
