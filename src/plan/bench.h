// How fast this machine runs a model, beside what it could do at most: every rate comes with the ceiling measured in
// the same run.
//
// The ceilings are multiply-adds in registers and the copying of memory. Matrix products and attention are held to the
// first, everything else to the second. Then the run's own step: its useful work a second, held to the rate of its
// weights' products run alone, one after the other. Machines are noisy: steps and products alternate, medians are
// reported, and the step's ratio is the median of the ratios of neighbours.
#pragma once
#include <string>
#include <vector>

#include "spec/run_spec.h"

namespace lockstep {

struct BenchItem {
  std::string name;
  double value;
  std::string unit;  // "GFLOP/s", "GB/s", "tokens/s", …
  double ceiling;    // in the same unit; 0: it has none
  double ratio() const { return ceiling > 0 ? value / ceiling : 0; }
};

// `rounds`: how many times a step and its products are timed.
std::vector<BenchItem> run_bench(const RunSpec& spec, int rounds);

}  // namespace lockstep
