// Whether a run's step is small enough to be listed and counted: what a plan asks before it begins.
#pragma once
#include "spec/run/run_spec.h"

namespace lockstep {

// UserError (usage) where what one rank's step computes and holds would leave 63 bits, or where the lists of actions of
// all stages would take longer than about two seconds to make. Of a run that validate() has let pass.
void check_extent(const RunSpec& spec);

// Whether such a run can be: its settings go together (validate), and it is not too large to list.
bool is_possible(const RunSpec& spec);

}  // namespace lockstep
