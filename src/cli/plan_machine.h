// A step's predicted time on a machine, as people and programs read it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/step_prediction.h"

namespace lockstep {

// Time, what it consists of, MFU, and whether the fullest rank fits into a device, line by line.
std::string prediction_table(const RunSpec& spec, const MachineSpec& machine, const StepPrediction& prediction,
                             const Plan& fullest);
// {machine, step_seconds, tokens_per_second, mfu, bubble, exposed_seconds{dp, pp, cp, tp}, compute_seconds,
// offload_seconds, peak_bytes}
nlohmann::ordered_json prediction_json(const MachineSpec& machine, const StepPrediction& prediction,
                                       std::int64_t peak_bytes);
bool fits_device(const MachineSpec& machine, const RunSpec& spec, const Plan& fullest);

}  // namespace lockstep
