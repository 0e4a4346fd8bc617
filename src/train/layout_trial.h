// The same run under several layouts: does each learn what the first learns?
//
// Every layout trains a few steps from the run's seed on the same batches, its ranks as threads. After every step the
// loss, the norm, each logical gradient and each weight are held against the first layout's. Errors of tensors are
// relative to the first layout's norm, which has a floor of 1e-6 of the norm of all of them together, since some true
// gradients are zero; weights that are noise (train/key_bias.h) count only where bits are compared. What is kept are
// the first layout's gradients and weights of every step, on the host.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "spec/run_spec.h"

namespace lockstep {

struct TrialOptions {
  std::int64_t steps = 3;
  bool exact = false;  // every bit must be equal
};

// The first thing that was not equal, in the order of steps: losses, gradients, norms, weights.
struct Difference {
  std::int64_t step;  // from 1
  std::string what;   // "the loss", "the gradient of model.embed_tokens.weight"
  double error;
  std::int64_t elements;  // that differ; of a loss or norm, 1
};

struct LayoutVerdict {
  LayoutSpec layout;
  double loss, gradient, norm, weight;  // the largest errors of any step and tensor
  double tolerance;                     // of weights ten times that
  std::optional<Difference> first;      // nothing: equal to the first layout
};

struct LayoutReport {
  Precision precision;
  std::int64_t steps, tensors;
  double last_loss;                     // of the first layout
  std::vector<LayoutVerdict> verdicts;  // of the other layouts
  bool ok() const;
};

// The run's own layout is not looked at. UserError when the run cannot be laid out so.
LayoutReport compare_layouts(const RunSpec& run, const std::vector<LayoutSpec>& layouts, const TrialOptions& options);

}  // namespace lockstep
