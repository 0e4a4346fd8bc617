#include "plan/snapshot_place.h"

#include <vector>

#include "plan/plan.h"

namespace lockstep {

namespace {

constexpr std::int64_t kLeftFree = 20;  // 1 / 20 of the memory

}  // namespace

std::string resolve_snapshot(RunSpec& spec, std::int64_t available) {
  if (spec.run.device != RunDevice::cuda || spec.train.snapshot == SnapshotPlace::host) return "";
  const bool asked = spec.train.snapshot == SnapshotPlace::device;
  spec.train.snapshot = SnapshotPlace::host;
  const bool saves = spec.train.async_save && (spec.train.save_every > 0 || spec.train.save_last);
  if (!saves || spec.sparsity || spec.memory.offloads_state()) return "";
  RunSpec beside = spec;
  beside.train.snapshot = SnapshotPlace::device;
  const std::vector<Plan> stages = plan_stages(beside);
  const std::int64_t needs = fullest(stages).peak + fullest(stages).outside;
  if (needs <= available - (asked ? 0 : available / kLeftFree)) {
    spec = beside;
    return "";
  }
  return asked ? "train.snapshot = \"device\" does not fit beside the run on this GPU: saves copy the state to the host"
               : "";
}

}  // namespace lockstep
