// Whether a run can do without a flush of its pipeline (spec/pipeline/pipedream.h).
#pragma once
#include "spec/run/run_spec.h"

namespace lockstep {

// `fail` is given the key, the problem and a remedy, and throws.
using UnflushedFault = std::function<void(std::string_view section, std::string_view key, const std::string& problem,
                                          const std::string& remedy)>;
void check_unflushed(const RunSpec& spec, const UnflushedFault& fail);

}  // namespace lockstep
