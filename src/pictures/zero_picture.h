// ZeRO drawn over the actions of one step: which units' weights and gradients are whole on a rank, and the bytes of
// model state that it needs at each moment, for ZeRO 0 to 3.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "spec/layout/layout_spec.h"
#include "spec/step/actions.h"

namespace lockstep {

struct ResidentUnit {
  std::string name;
  std::int64_t elements;  // as stored
};
// Bytes of an element: bf16 weights, fp32 gradients, master weights and two moments.
struct StateBytes {
  std::int64_t weight = 2, gradient = 4, optimizer = 12;
};

// What one rank has during one phase, norm or update of its step.
struct ResidencyMoment {
  Action action;
  std::vector<bool> weights, gradients;  // by unit: whole here
  // Bytes: its shards (all of it, where nothing is sharded), and the units that are whole beside them.
  std::int64_t parameters = 0, gathered = 0, gradient = 0, summed = 0, optimizer = 0;
  std::int64_t total() const { return parameters + gathered + gradient + summed + optimizer; }
};

// A unit's weights are gathered and released where the step's actions say so. Where every micro-batch's gradients are
// passed on, a whole gradient exists from the phase that writes it until its sum is waited for: before a third unit's
// is begun, or before the norm.
std::vector<ResidencyMoment> residency(std::span<const ResidentUnit> units, const LayoutSpec& layout,
                                       const StateBytes& bytes);

// ZeRO 0 to 3 over `ranks` ranks.
std::string zero_picture(std::span<const ResidentUnit> units, std::int64_t ranks, const std::string& model);

}  // namespace lockstep
