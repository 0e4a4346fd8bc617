// All that a run's checkpoint holds of one rank, as bytes.
#pragma once
#include <vector>

#include "train/training_run.h"

namespace lockstep::tests {

// One tensor after the other.
inline std::vector<char> state_bytes(TrainingRun& run) {
  std::vector<char> all;
  for (const StateTensor& t : run.replica().state()) {
    const char* p = static_cast<const char*>(t.live.raw());
    all.insert(all.end(), p, p + t.live.bytes());
  }
  return all;
}

}  // namespace lockstep::tests
