// What a run will take, before it runs: the real set-up and one real step on `meta`.
//
// There is no arithmetic of layers here. The run's own objects are made on a device that holds and computes nothing,
// and its ledger and counts are read, so a prediction cannot drift from the program.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "checkpoint/state_copy.h"
#include "offload/staging.h"
#include "plan/step_messages.h"
#include "spec/run/run_spec.h"
#include "tensor/ledger.h"
#include "tensor/meta/stream.h"
#include "train/relayout.h"
#include "train/run_data.h"

namespace lockstep {

class RunData;

// Beyond that a picture, which has a line per unit and a column per phase, is as large as a run's memory.
inline constexpr std::int64_t kMostDrawnLayers = 1024;

struct Plan {
  int rank = 0;                 // whose it is
  bool serves = false;          // a parameter server's
  std::string units;            // that it has: "embedding", "embedding to block.3", "block.0, block.4 to head"
  std::int64_t parameters = 0;  // elements of the logical tensors
  std::int64_t adapters = 0;    // those of adapters, beside which the others are frozen; 0: there are none
  std::int64_t stored =
      0;  // Ψ: elements as stored of what is trained, padding included, by a rank that has all of every layer
  std::int64_t layer_part = 0;  // those of this rank's part of every layer; alone, Ψ
  std::int64_t tokens_a_step = 0;
  std::vector<SourceUse> sources = {};  // of a mixture, over the whole run
  double model_flops = 0;               // per step, as the field counts them (spec/model/model_flops.h)
  double useful_tokens = 0;             // that they are of: not padding
  meta::Work executed;                  // per step, as the kernels count them
  std::int64_t peak = 0;                // bytes, of the whole run
  std::int64_t steady = 0;              // bytes held while training
  std::int64_t outside = 0;             // bytes that a GPU's driver and libraries take beside it: an estimate
  std::int64_t host = 0;   // bytes of a GPU's run on the host: what is offloaded there, what is saved, and text
  std::int64_t disk = 0;   // bytes of state that is offloaded to a disk
  CopyBytes copies;        // of the state in the host's memory, beside all of that, under launch
  Staging::Traffic moved;  // bytes per step of offloaded state
  std::int64_t moved_activations = 0;  // bytes per step of offloaded activations, from the device; as many come back
  Staging::Traffic moved_in_all() const {
    return {.to_device = moved.to_device + moved_activations, .from_device = moved.from_device + moved_activations};
  }
  StepMessages messages;                // of a training step
  std::vector<GroupMessages> by_group;  // the same, by the names of groups
  StepMessages synchronization;         // of replicas that take local steps, when they agree; in no other step
  // Mask steps of a run with [sparsity]: bytes of optimizer state before and after each. Not exact: they are the most
  // that this rank may have, as which elements of a split matrix stay is not known before the run.
  std::vector<Relayout> relayouts;
  bool exact_relayouts = true;
  std::string picture;                // of its actions (pictures/step_picture.h); none of more than kMostDrawnLayers
  Ledger::Rows rows;                  // by tag and unit
  Ledger::Rows host_rows, disk_rows;  // the same of what is there
  std::int64_t current(Tag tag) const;
  std::int64_t peak_of(Tag tag) const { return peaks[static_cast<int>(tag)]; }
  std::array<std::int64_t, kTags> peaks{};
};

// Of the first rank of each stage; without a pipeline, of rank 0. All ranks of a stage need as much. Where there are
// parameter servers, then of the first server of each stage, as which the others are. UserError (usage) of a run too
// large to be counted (spec/run/run_extent.h).
std::vector<Plan> plan_stages(const RunSpec& spec);
std::vector<Plan> plan_stages(const RunSpec& spec, const RunData& data);  // that is there already: the run's own
// The one of these that needs most memory.
const Plan& fullest(const std::vector<Plan>& plans);

// Of one rank. `shared`: the data that ranks of one process share, and rank 0 counts; none: each has its own.
Plan plan_run(const RunSpec& spec, int rank = 0, const RunData* shared = nullptr);

// UserError (does_not_fit) when the plan needs more than `available` bytes of its device: by how much, by which tags,
// and settings that would fit (plan/fit_search.h), if some are found; those take no more than `host` and `disk` bytes
// there.
void require_fit(const RunSpec& spec, const Plan& plan, std::int64_t available,
                 std::int64_t host = std::numeric_limits<std::int64_t>::max(),
                 std::int64_t disk = std::numeric_limits<std::int64_t>::max());
// The same for what a GPU's run keeps on the host.
void require_host_fit(const Plan& plan, std::int64_t available);
// And for state that is offloaded to a disk: all ranks that use the run's folder together.
void require_disk_fit(const RunSpec& spec, const Plan& plan, std::int64_t ranks);

// Bytes that a run on this device may take. Of a GPU, what is free on it; on the cpu, what this process may still take:
// the least of what the machine has free and what its cgroup leaves.
std::int64_t available_memory(Device device = Device::cpu);
// Bytes that are free where state offloaded to a disk would be.
std::int64_t available_disk(const RunSpec& spec);

}  // namespace lockstep
