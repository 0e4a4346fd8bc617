// Trains the same run under several layouts and checks that each learns what the first learns.
//
// Every layout trains a few steps from the run's seed on the same batches (train/trial_steps.h). What is compared, and
// how, depends on the precision:
//
//   --exact     every loss, norm, gradient and weight with the first layout's, bit for bit
//   fp64        the same to 1e-11, weights to 1e-10. Errors of tensors are relative to the first layout's norm, which
//               has a floor of 1e-6 of the norm of all of them together, since some true gradients are zero; weights
//               that are noise (train/key_bias.h) are left out
//   others      every layout, the first too, with one rank, as close as rounding allows (train/rounding_check.h).
//               Where an error is too large for chance and too small for certainty, the layout and one rank train in
//               fp64, and that decides
//
// The steps of two layouts are kept, on the host, as doubles.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "spec/run/run_spec.h"
#include "train/rounding_check.h"
#include "train/trial_steps.h"

namespace lockstep {

struct TrialOptions {
  std::int64_t steps = 3;
  bool exact = false;       // every bit must be equal
  TrialFaults faults = {};  // of tests
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
  // The largest differences from the first layout, of any step and tensor. In other types than fp64 they are shown, not
  // judged: they grow from step to step.
  double loss = 0, gradient = 0, norm = 0, weight = 0;
  double tolerance = 0;                          // of them, in fp64; of weights ten times that
  std::optional<RoundingVerdict> rounding = {};  // not in fp64
  std::optional<Difference> undecided = {};      // by rounding, and equal in fp64
  std::optional<Difference> first = {};          // nothing: equal
};

struct LayoutReport {
  Precision precision;
  std::int64_t steps, tensors;
  double last_loss;                          // of the first layout
  std::vector<LayoutVerdict> verdicts;       // of the other layouts
  std::optional<LayoutVerdict> itself = {};  // of the first, not in fp64
  bool ok() const;
};

// The run's own layout is ignored. UserError when the run cannot be laid out so.
LayoutReport compare_layouts(const RunSpec& run, const std::vector<LayoutSpec>& layouts, const TrialOptions& options);

}  // namespace lockstep
