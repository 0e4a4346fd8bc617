// A stage's step from a pipeline's schedule: each step of a chunk written out unit by unit, with the messages between
// stages, the reductions, and what follows them.
//
// The last unit's forward is followed at once by both its backwards: it has already made its gradient, and nothing of
// it need be kept until the chunk's backward. A fused backward sends its gradient on when it is done, weights and all.
// A chunk's step asks for what it needs from another stage before the step that precedes it (or, without `ahead`, right
// before itself), so that it can arrive meanwhile. Messages from one stage are asked for in the order in which that
// stage sends them.
#pragma once
#include <vector>

#include "spec/pipeline/schedule.h"
#include "spec/step/actions.h"

namespace lockstep {

// Of the stage that the shape names; its stages have the schedule's chunks.
std::vector<Action> pipeline_step(const PipelineSchedule& schedule, const StepShape& shape, bool ahead = true);
// The forwards alone, in the same order.
std::vector<Action> pipeline_forward(const PipelineSchedule& schedule, const StepShape& shape, bool ahead = true);

// By action: which of the stage's list in the schedule it is part of; -1: of none.
std::vector<int> positions_of(const std::vector<Action>& actions, const PipelineSchedule& schedule,
                              const StepShape& shape);

}  // namespace lockstep
