// What a checkpoint of a run costs on a machine: bytes that the fullest rank writes, and seconds.
//
// All ranks write at the same time, each its part of the state to its own disk. With train.async_save the run stalls
// while the state is copied to the host (host_link), and the write follows beside the next steps; without it the run
// stalls for the write.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/plan.h"
#include "spec/machine/machine_spec.h"

namespace lockstep {

struct SaveCosts {
  std::int64_t bytes = 0;
  double stall_seconds = 0;
  double write_seconds = 0;  // after the stall, beside steps
};

// `stages`: the plans of the run. UserError (usage) where the machine says nothing of its disk, or of the host link.
SaveCosts save_costs(const RunSpec& spec, const MachineSpec& machine, const std::vector<Plan>& stages);

}  // namespace lockstep
