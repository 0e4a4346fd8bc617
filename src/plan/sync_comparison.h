// One run under several techniques of [sync], each beside full synchronization: what they send, how fast they are on a
// slow link, as predicted and as measured, and what they learn from as many tokens.
//
// The layout, the model and the batch stay. All techniques are timed in turn, in rounds, as layouts are
// (plan/comparison.h); a round of replicas that agree after every k steps has a multiple of k steps, so that it has its
// share of synchronizations, and what is said of a step is their mean. What is learned does not depend on the link:
// where a loss is asked for, each technique trains from the same initial weights, without one, and is evaluated in the
// end. Rows other than full are outside the claim of equal results (docs/design.md, rule 2).
//
// Ranks are threads of this process.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/comparison.h"

namespace lockstep {

struct SyncTechnique {
  std::string name;  // "full", "compress=int8", "kind=partial,every=16"
  RunSpec run;       // whose train.steps is a multiple of the steps between synchronizations
};

struct ComparedSync {
  SyncTechnique technique;
  ComparedLayout ran;
  std::optional<double> loss = {};  // of the evaluation after all of the run's steps; without one, of the last step
};

struct SyncComparison {
  std::vector<ComparedSync> all;  // full first; those that were timed
  bool stopped = false;           // before all had been tried
  bool ok() const;                // all have the bytes and messages that were planned
  // Of the first one's, which is full.
  double relative(const ComparedSync& of) const;                  // tokens per second
  double bytes_of_full(const ComparedSync& of) const;             // sent per step, over the first one's
  std::optional<double> more_loss(const ComparedSync& of) const;  // 0.01: a hundredth more
};

struct SyncComparisonOptions {
  ComparisonOptions costs;                              // steps, rounds, forecasts, link and wants_stop are used
  bool losses = false;                                  // train all of the runs' steps, too
  std::function<void(const std::string&)> begins = {};  // with a name, before each of each round and each loss
};

// UserError (does_not_fit) where a technique needs more memory than there is.
SyncComparison compare_sync(const std::vector<SyncTechnique>& techniques, const SyncComparisonOptions& options);

}  // namespace lockstep
