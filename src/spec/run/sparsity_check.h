// Whether a run can train with the mask that [sparsity] asks for.
#pragma once
#include "spec/run/run_spec.h"

namespace lockstep {

// `fail` is given the key, the problem and a remedy, and throws.
using SparsityFault = std::function<void(std::string_view section, std::string_view key, const std::string& problem,
                                         const std::string& remedy)>;
void check_sparsity(const RunSpec& spec, const SparsityFault& fail);

}  // namespace lockstep
