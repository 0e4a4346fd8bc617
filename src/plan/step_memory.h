// What one rank's memory is used for while a step runs, action by action.
//
// A run takes its buffers once: what it holds does not change during a step. What is in use does: activations live from
// the phase that writes them to the last that reads them, and under ZeRO-3 a unit's weights are whole between its
// gather and its release. Parameters, gradients, optimizer state and the rest are in use all the time.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "spec/run/run_spec.h"
#include "spec/step/actions.h"
#include "tensor/ledger.h"

namespace lockstep {

struct StepMemory {
  using ByTag = std::array<std::int64_t, kTags>;
  std::vector<ByTag> in_use;  // bytes, by action of the rank's list
  ByTag held{};               // bytes, all the time
};

// Of a rank of the run, found on meta.
StepMemory step_memory(const RunSpec& spec, int rank);

// Bytes in use of one thing: a tensor, or all that a unit has of a tag.
struct TensorInUse {
  Tag tag;
  std::string unit;  // "block.3"; empty: of none
  std::string name;  // of an activation; else empty
  int micros = 0;    // of an activation: how many micro-batches have it in use
  std::int64_t bytes = 0;
};

// The same with when the most is in use, and what that is.
struct MemoryTimeline {
  int rank = 0;
  std::vector<std::string> units;  // names, of the model
  std::vector<Action> actions;
  StepMemory memory;
  std::vector<StepMemory::ByTag> held;  // bytes, by action, as the ledger had them when it ran
  std::size_t peak = 0;                 // the first action at which most is in use
  std::vector<TensorInUse> at_peak;     // the largest first; by tag they have what is in use then

  std::int64_t in_use(std::size_t action) const;
  StepMemory::ByTag most_held() const;  // by tag, of any action
  std::int64_t most() const;            // of all of them together, at one action
};
MemoryTimeline memory_timeline(const RunSpec& spec, int rank);

// "backward_input of block.3, micro-batch 1", "norm".
std::string text_of(const Action& action, const std::vector<std::string>& units);

}  // namespace lockstep
