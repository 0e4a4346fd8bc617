// What a person is told before training begins: settings that work, and seldom do what was meant.
#pragma once
#include <string>
#include <vector>

#include "spec/run/run_spec.h"
#include "train/training_run.h"

namespace lockstep {

// One line each: a step of more samples than the data has; products that were asked for in fp8 and do not fit it.
std::vector<std::string> start_notes(const RunSpec& spec, TrainingRun& run);

}  // namespace lockstep
