// What `plan --timeline` shows: memory over one step, as text and as a picture.
#pragma once
#include <string>
#include <vector>

#include "pictures/memory_timeline_picture.h"
#include "plan/plan.h"
#include "plan/step_memory.h"

namespace lockstep {

// Runs of actions: the forward or the backward of a micro-batch, with what comes between its phases; norm, update and
// all that follows.
std::vector<MemoryPhase> memory_phases(const std::vector<Action>& actions);

std::string timeline_text(const RunSpec& spec, const MemoryTimeline& line);
std::string timeline_svg(const RunSpec& spec, const MemoryTimeline& line);

}  // namespace lockstep
