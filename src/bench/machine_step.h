// A training step of a small model as a measure of a machine file.
//
// Kernels that are timed one by one find their operands in caches, and a step's do not: a file of such times alone says
// less than a step takes, by a few to twenty percent. So the last thing that is measured is a step, and the shares of
// all kernels are scaled by what it took over what the file says of it.
#pragma once
#include <functional>

#include "bench/core_bench.h"
#include "spec/machine/machine_spec.h"

namespace lockstep {

// One rank of one thread; the model is of the sizes' `step`.
RunSpec step_run(Device device, Precision precision, const BenchSizes& sizes);

// The lower quartile of some steps' seconds; on the cpu of those that the calling thread computed. `together` is called
// before the steps that count: it waits for all who measure.
double measure_step(const RunSpec& run, const std::function<void()>& together);

// The machine with kernels that take so much longer that the step takes `seconds`; messages stay.
MachineSpec held_to_step(const MachineSpec& machine, const RunSpec& run, double seconds);

}  // namespace lockstep
