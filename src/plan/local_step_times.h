// Steps of replicas that take local steps: most send nothing along dp, and one of every k ends with a synchronization.
#pragma once
#include <cstdint>
#include <limits>

#include "spec/run/run_spec.h"

namespace lockstep {

// Which of them is written down or timed. Where replicas agree in every step, there is only the usual one.
enum class StepKind : std::uint8_t { usual, synchronizing };

// Seconds of either, and of their mean.
struct LocalStepTimes {
  std::int64_t every = 1;
  double local = 0, synchronizing = 0;
  double mean() const { return over(local, synchronizing); }
  // The mean over `every` steps of something else that the two differ in.
  double over(double of_local, double of_synchronizing) const {
    const auto k = static_cast<double>(every);
    return (of_local * (k - 1) + of_synchronizing) / k;
  }
};

// The run, none of whose own steps synchronizes: who writes one down that does asks the replica for it.
inline RunSpec never_synchronized(RunSpec spec) {
  if (spec.sync.takes_local_steps()) spec.sync.every = std::numeric_limits<std::int64_t>::max();
  return spec;
}

}  // namespace lockstep
