// PipeDream as a slow, plain, serial model: one thread, no messages, each stage's weight versions in plain arrays. Of
// the program it uses the gradient of one rank alone, which other tests hold to references.
//
// Forward and backward of a micro-batch see the same version of every stage, so its gradient is that of the loss at
// weights put together from these versions.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/host_run.h"

namespace lockstep::tests {

using PlainValues = std::vector<std::vector<double>>;  // by logical tensor

struct PipeDreamRun {
  Replica::Options options;  // with a layout whose schedule has no flush
  std::int64_t steps = 20;
  std::set<std::int64_t> drained = {};  // steps after which the pipeline is emptied; it is at the end
  std::vector<PlainValues> from = {};   // weights, and AdamW's m and v; empty: the program's first weights
  double rate(std::int64_t step) const { return 1e-3 * (1 + 0.25 * static_cast<double>(step % 3)); }
  TokenBatch batch(std::int64_t step) const { return random_batch(options, static_cast<unsigned>(step) + 100); }
};

struct PipeDreamTrajectory {
  std::vector<double> losses;
  PlainValues weights;
};

// `stage_of`: by the name of a logical tensor.
PipeDreamTrajectory simulate_pipedream(const PipeDreamRun& run, const std::map<std::string, int>& stage_of);

}  // namespace lockstep::tests
