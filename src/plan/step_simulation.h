// Steps of a run in which some ranks are slow and times vary: how much longer a step takes, and who waits for whom.
//
// The run's script (plan/stage_script.h) runs on the device clock (plan/device_clock.h) with one lane per stage of each
// kind of replica (plan/slow_ranks.h), so the number of ranks costs nothing: the number of different replicas does.
//
// Jitter makes all replicas different, and then each is simulated by itself. The time of every phase of every stage of
// a replica is drawn: its logarithm is normal, its mean is the phase's time. tp and cp ranks of a stage vary together.
//
// What is simulated is limited to `most_pieces` pieces of scripts. Beyond that a part of the replicas stands for all:
// the first of every kind, the slowest kinds first, then others in order. Without jitter that leaves out the least slow
// kinds, which wait for the slowest anyway; with jitter the longest of the replicas left out may be longer than the
// longest of those simulated. `simulated` and `replicas` say how many there were.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/device_clock.h"
#include "plan/slow_ranks.h"

namespace lockstep {

struct SimulationSpec {
  std::vector<SlowShare> slow = {};
  double jitter = 0;  // the standard deviation of the logarithm of a phase's time
  std::uint64_t seed = 1;
  int steps = 1;        // of jitter: steps that are drawn, each anew; slow ranks stay the same
  bool grouped = true;  // replicas that are alike are simulated once; false: each by itself, for proofs
  std::int64_t most_pieces = 100'000'000;
};

// One stage of all replicas.
struct SimulatedStage {
  std::int64_t slow_ranks = 0;  // that it has
  double slowness = 1;          // the greatest of them
  double alone_seconds = 0;     // of a step in which only one rank is slow, this stage's slowest
  double computed = 0;          // mean over replicas
  ByAxis waited{};              // mean over replicas
};

struct StepSimulation {
  double plain_seconds = 0;          // of a step in which all ranks compute alike
  ByAxis plain_waited{};             // mean over stages
  double step_seconds = 0;           // mean over steps
  double shortest = 0, longest = 0;  // of the steps
  double computed = 0;               // mean over ranks and steps
  ByAxis waited{};                   // the same of waits for messages
  std::vector<SimulatedStage> stages = {};
  std::vector<SlowRank> slow = {};
  std::int64_t replicas = 1;                // of the world
  std::int64_t kinds = 1;                   // different ones
  std::int64_t simulated = 1;               // lanes of a stage
  std::int64_t slowest = 0;                 // the replica that waits least for others: they wait for it
  std::vector<double> slowest_stages = {};  // its slowness by stage
  double slowdown() const { return step_seconds / plain_seconds; }
};

StepSimulation simulate_steps(const WorldScript& script, const LayoutSpec& layout, const MachineSpec& machine,
                              const SimulationSpec& spec);

}  // namespace lockstep
