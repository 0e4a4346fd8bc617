// A step's time predicted from what meta counted, without running anything: what settings that fit are ordered by.
//
// A rank's step is the roofline of its work (plan/calibration.h), a little for each kernel, its messages, and the state
// that is offloaded. A pipeline takes as long as its slowest stage and its schedule's bubble. Nothing is taken to be
// hidden beside something else, so messages and offload count in full. That orders settings of one run; a forecast of
// its seconds is what `compare` makes, from steps that ran.
#pragma once
#include <string>
#include <vector>

#include "plan/calibration.h"
#include "plan/plan.h"
#include "spec/run/run_spec.h"

namespace lockstep {

// Of one rank, per second or in seconds.
struct FitRates {
  MachineRates machine;
  double kernel = 1e-6;   // seconds that a kernel takes beside its work
  double sent = 1e9;      // bytes of messages
  double latency = 2e-5;  // seconds of a message beside its bytes
  double moved = 1e9;     // bytes of offloaded state, to the device and back
  double saved = 1e9;     // bytes of a checkpoint, while the run waits
  std::string source;     // where they are from, in words
};

// Those of the machines that Lockstep is measured on (docs/memory.md), the same everywhere: nothing is measured.
FitRates stated_rates(const RunSpec& spec);
// The same with this machine's rates of products and copies, which takes a third of a second; of a GPU, as stated.
FitRates measured_rates(const RunSpec& spec);

// What a step's time consists of.
struct StepCost {
  double busy = 0;     // of the stage that computes and sends longest
  double stretch = 1;  // of a pipeline: its schedule's makespan over the time in which a stage is busy
  double beside = 0;   // what is moved to and from where state is offloaded
  double seconds() const { return busy * stretch + beside; }
};
StepCost step_cost(const RunSpec& spec, const std::vector<Plan>& stages, const FitRates& rates);
double pipeline_stretch(const LayoutSpec& layout);

}  // namespace lockstep
