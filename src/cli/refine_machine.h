// lockstep bench machine --refine RUN: a machine file brought nearer to what runs took (plan/machine_refinement.h).
#pragma once
#include <string>
#include <vector>

#include "spec/machine/machine_spec.h"

namespace lockstep {

// The machine that the runs' own files name, or `named`. Prints the runs with the error before and after, and every
// term that has changed. UserError where a folder is none of a run, has too few timed steps, or names no machine.
MachineSpec refined_by_runs(const std::vector<std::string>& runs, const std::string& named);

}  // namespace lockstep
