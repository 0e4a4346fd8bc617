// Local steps as a slow, plain, serial model, one thread, no messages, loops over doubles; and the same run by the
// program over ranks as threads. Of the program the model uses the gradient of one rank alone, which other tests hold
// to references.
#pragma once
#include <vector>

#include "support/host_run.h"
#include "support/plain_adamw.h"

namespace lockstep::tests {

constexpr std::int64_t kLocalSteps = 20;  // or some more, up to a synchronization

SyncSpec local_sync(std::int64_t every, OuterStep outer);
// A small run in fp64 that clips.
Replica::Options local_options(const ModelSpec& spec, const LayoutSpec& layout, const SyncSpec& sync,
                               std::int64_t samples);
TokenBatch local_batch(const Replica::Options& options, std::int64_t step);

struct LocalTrajectory {
  std::vector<double> losses;
  std::vector<double> divergences;  // by synchronization
  PlainValues weights;
};
// The serial model: `groups` workers, one after the other.
LocalTrajectory simulate_local_steps(const Replica::Options& options, std::int64_t groups);
// The program. Every group ends with the same bits.
LocalTrajectory train_local_steps(const Replica::Options& options, Device device = Device::cpu);

}  // namespace lockstep::tests
