// Counts a step on meta phase by phase, and reuses the counts of a phase for later micro-batches.
//
// All micro-batches have the same shapes, so a phase of a unit makes the same calls for each of them, except that the
// first writes the gradients and the others add to them. Each of these two cases is run once and then looked up.
#pragma once
#include "spec/step/actions.h"

namespace lockstep {

class PhaseCounter {
 public:
  virtual ~PhaseCounter() = default;
  // Whether it has added what this phase comes to, which then does not run; if not, it runs, and has run then.
  virtual bool has_counted(const Action& phase, bool accumulates) = 0;
  virtual void has_run(const Action& phase, bool accumulates) = 0;
};

}  // namespace lockstep
