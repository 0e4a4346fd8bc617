// What every part of a model is built from: the spec, the sizes of a micro-batch, the type it computes in, how it is to
// be run, and where to declare slots.
#pragma once
#include "model/slots.h"
#include "model/unit.h"
#include "spec/memory_spec.h"
#include "spec/model_spec.h"

namespace lockstep {

// The slots a unit shares with its neighbours.
struct Between {
  Slot x = -1, dx = -1;  // from the unit before, and its gradient
  Slot y = -1, dy = -1;  // to the unit after, and its gradient
};

// How a model is run, beside what it is.
struct Execution {
  Device runs_on = Device::cpu;  // or what `meta` stands for: kernels may ask for memory of their own there
  bool deterministic = true;     // false: kernels may be chosen whose last bits differ from run to run
  MemorySpec memory = {};
  std::int64_t loss_tokens = 0;  // of a micro-batch, by which the head's chunks are measured; 0: its own
};

struct Build {
  const ModelSpec& spec;
  std::int64_t B;  // samples of a micro-batch
  std::int64_t T;  // tokens of a sample
  DType dtype;     // of activations and of the weights that compute
  Slots& slots;
  Execution how = {};

  std::int64_t tokens() const { return B * T; }

  // A slot of (tokens, columns) that lives within one unit.
  Slot rows(int unit, const std::string& name, std::int64_t columns, Phase born, Phase last,
            Half born_half = Half::first, Half last_half = Half::second) const {
    return slots.add({name, dtype, {tokens(), columns}, {unit, born}, {unit, last}, born_half, last_half});
  }
};

}  // namespace lockstep
