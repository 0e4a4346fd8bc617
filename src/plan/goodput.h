// A long run with failures, checkpoints and restarts, simulated: how much of the wall time becomes steps that count.
//
// What is simulated:
//
//   - Devices in use fail at exponential gaps, nodes too (network, power, host), whatever the run does at the moment:
//     computing, saving or recovering. A failure takes the whole node out, since a node is what is drained and
//     replaced. Idle spares do not fail.
//   - After `save_every` steps a save stalls the run for `save_stall_seconds` and is on disk `save_write_seconds`
//   later,
//     while the next steps run. One save is written at a time: the next one waits. What is not on disk when a failure
//     strikes is lost, and its steps are run again.
//   - A failure is detected after `detect_seconds`. A spare then takes the node's place at once. Without one the run
//     waits until a node is back, `repair_seconds` after the detection, or shrinks to the whole replicas that are left.
//     Nodes that were repaired while nothing waited for them are spares.
//   - The run then restarts and loads the newest checkpoint on disk. A failure at any moment of this begins it anew
//   with
//     its detection.
//   - A shrunk run keeps the global batch, so its steps take longer by the share of nodes that it lost. When enough
//     nodes for another replica are back, it stops after its next save, waits until that is on disk, and restarts with
//     them.
//
// The simulation jumps from event to event: the number of steps or saves between two failures does not matter, nor does
// the number of ranks. Random gaps are a function of seed, repeat and failure (base/philox.h), so the same input gives
// the same output. plan/checkpoint_interval.h has the closed form for runs that never wait for a node.
#pragma once
#include <cstdint>

#include "plan/checkpoint_interval.h"

namespace lockstep {

struct GoodputSpec {
  double step_seconds = 1;  // with all nodes
  std::int64_t ranks = 1;   // one device each
  std::int64_t devices_per_node = 1;
  double device_hours_between_failures = 0;  // mean, of one device; 0: devices do not fail
  double node_hours_between_failures = 0;    // mean, of one node beside its devices; 0: none

  std::int64_t save_every = 100;  // steps
  double save_stall_seconds = 0;
  double save_write_seconds = 0;
  double detect_seconds = 0;
  double restart_seconds = 0;
  double load_seconds = 0;

  std::int64_t spare_nodes = 0;
  double repair_seconds = 0;  // 0: the same node can be used again at once, as after a crashed process
  bool shrink = false;        // instead of waiting for a repair
  std::int64_t nodes_per_replica = 1;

  double duration_seconds = 30 * 86400.0;
  std::int64_t repeats = 100;  // how often that duration is simulated
  std::uint64_t seed = 1;

  std::int64_t nodes() const { return (ranks + devices_per_node - 1) / devices_per_node; }
  // Of all devices and nodes in use together.
  double failures_per_second() const;
};

// Wall seconds that are not useful. With the useful ones they add up to the duration.
struct LostSeconds {
  double redone = 0;     // steps that a failure made the run repeat, and the unfinished one at the end
  double saves = 0;      // stalls, and waiting for the disk
  double detection = 0;  // from a failure until it is noticed
  double waiting = 0;    // for a repair
  double restart = 0;    // restarting and loading
  double shrunk = 0;     // what steps took longer with fewer nodes
  double sum() const { return redone + saves + detection + waiting + restart + shrunk; }
};

// Of one simulated duration.
struct GoodputOutcome {
  double goodput = 0;      // useful seconds, steps × step_seconds, over the duration
  std::int64_t steps = 0;  // done at the end, each counted once
  std::int64_t failures = 0;
  std::int64_t recoveries_failed = 0;  // begun anew, because of a failure during recovery
  std::int64_t saves_lost = 0;         // taken, but not on disk when a failure struck
  LostSeconds lost;
};

struct GoodputForecast {
  double mean = 0, low = 0, high = 0;  // goodput over the repeats: its mean, 5 % and 95 % quantiles
  double deviation = 0;                // standard deviation of one repeat's goodput
  double steps = 0, failures = 0, recoveries_failed = 0, saves_lost = 0;  // means
  LostSeconds lost;                                                       // means
};

// Throws UserError (usage) for numbers that make no run, and for more failures than can be simulated in a minute.
void validate(const GoodputSpec& spec);

// `repeat` chooses the random gaps. Both validate first.
GoodputOutcome simulate_run(const GoodputSpec& spec, std::int64_t repeat);
GoodputForecast simulate_goodput(const GoodputSpec& spec);

// For the closed form: a run with a spare for every failure. Recovery is detection, restart and load.
CheckpointCosts checkpoint_costs(const GoodputSpec& spec);
// The `save_every` with the greatest expected goodput: at least 1, and at most the steps of the whole duration.
std::int64_t best_interval(const GoodputSpec& spec);

}  // namespace lockstep
