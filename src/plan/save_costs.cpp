#include "plan/save_costs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep {

namespace {

// The snapshot that a rank writes its state from (checkpoint/checkpoint_writer.h).
std::int64_t snapshot_bytes(const std::vector<Plan>& stages) {
  std::int64_t most = 0;
  for (const Plan& plan : stages)
    for (const Ledger::Rows* rows : {&plan.rows, &plan.host_rows})
      for (const auto& [place, count] : *rows)
        if (place.second == "checkpoint") most = std::max(most, count.peak);
  return most;
}

}  // namespace

SaveCosts save_costs(const RunSpec& spec, const MachineSpec& machine, const std::vector<Plan>& stages) {
  SaveCosts costs;
  if (spec.train.async_save) costs.bytes = snapshot_bytes(stages);
  if (costs.bytes == 0) {  // without one, what it would be
    RunSpec beside = spec;
    beside.train.async_save = beside.train.save_last = true;
    costs.bytes = snapshot_bytes(plan_stages(beside));
  }
  const auto require = [&](double rate, const char* what) {
    if (rate <= 0)
      throw UserError(ExitCode::usage, fmt::format("machine {} has no {}, which saves need", machine.name, what),
                      fmt::format("add it, as in --set machine.{}=2GB/s", what));
    return static_cast<double>(costs.bytes) / rate;
  };
  const double write = require(machine.disk_write, "disk_write");
  if (spec.train.async_save) {
    costs.stall_seconds =
        spec.train.snapshot == SnapshotPlace::device
            ? 2 * static_cast<double>(costs.bytes) / machine.rate_of_copy(static_cast<double>(costs.bytes))
            : require(machine.host_link, "host_link");
    costs.write_seconds = write;
  } else {
    costs.stall_seconds = write;
  }
  return costs;
}

}  // namespace lockstep
