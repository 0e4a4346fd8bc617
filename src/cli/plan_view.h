// A plan as people and programs read it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plan/plan.h"
#include "spec/run/run_spec.h"

namespace lockstep {

// The model, its work and its predicted memory by tag, line by line.
std::string plan_table(const RunSpec& spec, const Plan& plan);
// By tag and unit as well.
std::string stage_table(const std::vector<Plan>& plans);  // of a pipeline
std::string unit_table(const Plan& plan);
nlohmann::ordered_json plan_json(const RunSpec& spec, const Plan& plan);
// {tensors[{axis, op, dtype, calls, elements, received, bytes}], elements, bytes, numbers{calls, elements, bytes}}
nlohmann::ordered_json messages_json(const StepMessages& messages);

}  // namespace lockstep
