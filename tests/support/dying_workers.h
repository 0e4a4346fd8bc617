// Asynchronous training whose workers die and come back, over threads and real connections, and what it learned.
//
// A worker's ranks are threads that end by an exception: in the middle of a gradient's messages, of weights that come,
// of an evaluation, or before they have joined. Their connections close then, as those of a process do.
#pragma once
#include "support/async_ranks.h"

namespace lockstep::tests {

struct DyingTraining {
  AsyncTraining training = {};  // without a record
  int deaths = 10;              // of all workers
  int longest_life = 150;       // of a worker that dies: messages and reads
  unsigned seed = 1;
  std::int64_t evaluations = 0;  // batches, after each meeting
  // Of this ticket every worker dies, each time.
  std::optional<std::int64_t> poison = {};
};

struct DyingLearned {
  AsyncLearned learned;
  std::vector<WorkerChange> changes;
  std::vector<double> evaluations;  // losses
  int deaths = 0;                   // that there were
  std::string failure;              // of the servers
};

DyingLearned train_with_deaths(Replica::Options options, const DyingTraining& how);

// The loss of that batch of evaluation with these weights, by one rank.
double evaluation_of(const Replica::Options& options, const PlainValues& weights, std::int64_t batch);

}  // namespace lockstep::tests
