// The layout of a run that has fewer ranks than it was given, or its own where that still fits.
//
// The same tp, pp and cp with a smaller dp come first, since nothing but the batch's division changes then; `uneven`
// is switched on where the batch does not divide. Only where no dp is left, the fastest layout of at most that many
// ranks is taken, by predicted step time on the run's machine (run.machine; without one, on one that comes with
// Lockstep). Nothing that needs more than `rank_memory` bytes per rank is proposed; 0: memory is not looked at.
//
// What is learned does not depend on the choice (docs/design.md, rule 2): sums change their order, no more.
#pragma once
#include <cstdint>
#include <optional>

#include "spec/run/run_spec.h"

namespace lockstep {

std::optional<LayoutSpec> smaller_layout(const RunSpec& run, std::int64_t ranks, std::int64_t rank_memory = 0);

}  // namespace lockstep
