// Settings under which a run that is too large would fit.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "spec/run/run_spec.h"

namespace lockstep {

// The change that costs least time and makes each rank need no more than `available` bytes, as it is typed, with the
// bytes: "--set layout.micro=4 --set train.async_save=false fits: 1.2 GiB". Nothing when no setting helps. What is
// learned stays the same; every proposal has been planned.
std::optional<std::string> settings_that_fit(const RunSpec& asked, std::int64_t available);

}  // namespace lockstep
