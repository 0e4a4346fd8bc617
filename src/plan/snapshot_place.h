// train.snapshot = "auto": where a checkpoint's snapshot is taken first, in the GPU's own memory or on the host.
#pragma once
#include <cstdint>
#include <string>

#include "spec/run/run_spec.h"

namespace lockstep {

// In place of "auto": device where every rank takes no more than `available` bytes of its GPU with the snapshot on it,
// but for a twentieth that stays free; else host. Found with plans on meta (plan/plan.h), so that the run holds what
// was counted. A run that names `device`, or has resolved to it on another machine, and does not fit becomes one of
// `host` too: the line that says so is returned, which is empty otherwise. Runs on the cpu stay as they are.
std::string resolve_snapshot(RunSpec& spec, std::int64_t available);

}  // namespace lockstep
