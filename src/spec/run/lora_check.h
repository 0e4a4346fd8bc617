// Whether a run can train the adapters that [lora] asks for.
#pragma once
#include "spec/run/run_spec.h"

namespace lockstep {

// `fail` is given the key, the problem and a remedy, and throws.
using LoraFault = std::function<void(std::string_view section, std::string_view key, const std::string& problem,
                                     const std::string& remedy)>;
void check_lora(const RunSpec& spec, const LoraFault& fail);
// UserError (usage) where a run that is to be trained would begin with random weights beside its adapters.
void require_base(const RunSpec& spec);

}  // namespace lockstep
