// A stage's step from a pipeline's schedule: each step of a chunk written out unit by unit, with the messages between
// stages, the reductions, and what comes behind them.
//
// The last unit's forward is followed at once by both its backwards: it has made its gradient already, and nothing of
// it need be kept until the chunk's backward. A fused backward hands its gradient on when it is done, weights and all.
// What a chunk's step needs from another stage is asked for before the step in front of it (or, without `ahead`, right
// before it), so that it can come meanwhile; messages from one stage are asked for in the order in which that stage
// sends them.
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
