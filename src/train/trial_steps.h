// A few steps of training under a layout, its ranks as threads, and what they computed, whole.
//
// Every rank trains. Ranks that shard a copy of gradients and master weights put it together after every step; central
// data parallel has one copy, on rank 0, and parameter servers have one between them. Values that several ranks of one
// copy hold must be equal on all.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "spec/run/run_spec.h"
#include "train/replica.h"

namespace lockstep {

// Whole logical tensors by name.
using TrialTensors = std::map<std::string, std::vector<double>>;

// One copy of what a step computed.
struct TrialStep {
  int rank = 0;  // the first that holds a part of it
  double loss = 0, norm = 0;
  TrialTensors gradients, weights;  // before clipping; after the update

  struct Apart {
    std::string what;  // "the gradient of model.norm.weight"
    int rank;
    std::int64_t elements;
  };
  std::optional<Apart> apart;  // a rank that holds other values than the one that answers for them
};

// Deliberate errors, for tests of what is noticed. Both are called on every rank.
struct TrialFaults {
  // Before the gradients are read (updated = false), and after the update, before the weights are.
  std::function<void(const LayoutSpec&, Replica&, int rank, std::int64_t step, bool updated)> spoil = {};
  std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)> wrap = {};
};

// After each step, by one rank while the others wait: every copy that the ranks hold together.
using TrialLook = std::function<void(std::int64_t step, std::span<const TrialStep> copies)>;

// The run's own layout is ignored, and nothing is saved. UserError when the run cannot be laid out so.
void trial_steps(const RunSpec& run, const LayoutSpec& layout, std::int64_t steps, const TrialFaults& faults,
                 const TrialLook& look);

}  // namespace lockstep
