// What one rank's memory is used for while a step runs, action by action.
//
// A run takes its buffers once: what it holds does not change during a step. What is in use does: activations live from
// the phase that writes them to the last that reads them, and under ZeRO-3 a unit's weights are whole between its
// gather and its release. Parameters, gradients, optimizer state and the rest are in use all the time.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "spec/run/run_spec.h"
#include "tensor/ledger.h"

namespace lockstep {

struct StepMemory {
  using ByTag = std::array<std::int64_t, kTags>;
  std::vector<ByTag> in_use;  // bytes, by action of the rank's list
  ByTag held{};               // bytes, all the time
};

// Of a rank of the run, found on meta.
StepMemory step_memory(const RunSpec& spec, int rank);

}  // namespace lockstep
