// One step of every rank on a stated machine, as spans of time: what a rank computes, and the messages it takes part
// in.
//
// The step is the run's own, written down on meta (plan/step_script.h). Ranks compute at the machine's rates. Messages
// move beside computing, as over a network card: one begins when all its ranks have started it and the one before it in
// its channel is over, and takes the latency and the bytes that its busiest rank sends over the link's rate. So a rank
// loses time to a message only where it waits for it. (plan/step_forecast.h is the clock of ranks that are threads,
// share cores and move their messages themselves.)
#pragma once
#include <vector>

#include "pictures/step_timeline_picture.h"
#include "plan/calibration.h"
#include "plan/step_script.h"

namespace lockstep {

struct StatedMachine {
  MachineRates rates;
  double link = 1;     // bytes a second that a rank sends, per group
  double latency = 0;  // seconds of any message
};

// By rank: the second of the script's two steps, from where its first rank begins it. Numbers (the norm, counts of
// tokens) take the latency and are not shown.
std::vector<TimelineRow> step_timeline(const StepScript& script, const LayoutSpec& layout,
                                       const StatedMachine& machine);

}  // namespace lockstep
