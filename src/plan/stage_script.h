// What each stage of a run does in a step, written down from one of its ranks, for a machine whose ranks each have a
// device: any number of ranks, since those of a stage do the same.
//
// The run's own code records it on meta, as plan/step_script.h does for all ranks of a small world. What differs: one
// rank stands for its stage, so a message knows its group by what matters to its time (which axis, how many ranks over
// how many nodes) and not by its members; kernels have prices (plan/kernel_prices.h); and a phase of a unit is recorded
// once, for all micro-batches and units that do the same, with the messages of tp and cp inside it.
#pragma once
#include <compare>
#include <cstdint>
#include <vector>

#include "comm/message.h"
#include "plan/local_step_times.h"
#include "spec/layout/mesh_axis.h"
#include "spec/machine/machine_spec.h"
#include "spec/run/run_spec.h"
#include "tensor/meta/stream.h"
#include "train/rank_step.h"

namespace lockstep {

class RunData;

// A group of ranks on the machine's nodes, as one of its ranks sees it.
struct GroupSpan {
  MeshAxis axis = MeshAxis::dp;
  int ranks = 1;
  int nodes = 1;            // that have some of them
  int on_node = 1;          // of them, on the node of the rank that is asked, itself included
  bool over_spine = false;  // some are beyond the nodes that the network joins at full rate
  int on_spine = 1;         // where some are: how many are not, the rank itself included
  auto operator<=>(const GroupSpan&) const = default;
};
GroupSpan span_of(const std::vector<int>& members, int rank, MeshAxis axis, const MachineSpec& machine);

// A call of a communicator by one rank, as far as its time depends on it.
struct StageMessage {
  CommOp op = CommOp::barrier;
  Algorithm algorithm = Algorithm::canonical;
  GroupSpan group;          // of a send or receive: the two ends
  std::int64_t sent = 0;    // bytes, by the rank that sends most; of a receive, what arrives
  std::int64_t summed = 0;  // bytes that a rank reads and writes to sum; 0 of what is not summed
  std::int64_t steps = 1;   // one after the other
  int peer = -1;            // of a send or receive between stages: the other one's stage
  bool number = false;      // counts and norms, not tensors (comm/traffic.h)
  // Where there are parameter servers, of a message along dp: who takes part. A link is between the ranks that compute
  // and one server, whose bytes are most: it sends to, or receives from, each of them.
  enum class Among : std::uint8_t { computing, servers, all, link };
  Among among = Among::computing;
  int server = 0;            // of a link: whose, seen from a rank that computes
  std::int64_t busiest = 0;  // bytes of the root of a call among others than those that compute
  auto operator<=>(const StageMessage&) const = default;
};

struct StagePiece {
  enum class Kind : std::uint8_t { work, phase, start, wait, action_runs, action_done, step_begins, step_ends };
  Kind kind = Kind::work;
  int action = -1;     // in the stage's list, that it is part of; -1: of none
  int index = -1;      // of start: into messages; of phase: into phases
  int number = -1;     // of start and wait: which of this list's messages, from 0 on
  double seconds = 0;  // of work
  bool operator==(const StagePiece&) const = default;
};

// The calls of one phase. Its messages are numbered from 0.
struct PhaseScript {
  std::vector<StagePiece> pieces;
  meta::Work work;
  bool operator==(const PhaseScript&) const = default;
};

struct StageScript {
  std::vector<StagePiece> pieces;  // of two steps: what the first leaves under way is waited for in the second
  int messages = 0;                // that it starts outside phases
  RankStep step;
};

struct WorldScript {
  std::vector<StageMessage> messages;  // the different ones
  std::vector<PhaseScript> phases;
  std::vector<StageScript> stages;
  std::vector<StageScript> servers = {};  // of the first server of each stage, as which the others are
  int servers_each = 0;                   // how many servers the weights of a stage have
};

// `prices` is asked for every kernel once per phase and unit. `data`: what ranks share. `kind`: of the second step,
// where replicas take local steps.
WorldScript world_script(const RunSpec& spec, const MachineSpec& machine, const meta::KernelPricer& prices,
                         const RunData& data, StepKind kind = StepKind::usual);

}  // namespace lockstep
