// What every rank of a layout does in a step, in order: what it computes, which messages it starts and where it waits
// for them.
//
// The run's own code records it: each rank takes its steps on meta, and what the stream has counted between two calls
// to a communicator is one piece of work. So the script contains whatever a layout hides, or does not, with no
// knowledge of layouts here. An action that asks whether a message is done continues as if it were, which it may not be
// on a real rank.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/message.h"
#include "plan/local_step_times.h"
#include "spec/run/run_spec.h"
#include "tensor/meta/stream.h"
#include "train/rank_step.h"

namespace lockstep {

class RunData;

struct ScriptPiece {
  enum class Kind : std::uint8_t { work, start, wait, action_runs, action_done, step_begins, step_ends };
  Kind kind;
  int action = -1;         // in the rank's list, that it is part of; -1: of none
  meta::Work work = {};    // of kind work
  int message = -1;        // of start and wait
  std::int64_t bytes = 0;  // of start, but of a receive: that the rank sends or receives, whichever are more
  std::int64_t steps = 0;  // likewise: of the message's algorithm, one after the other
};

struct ScriptMessage {
  CommOp op;
  int ranks = 2;           // that start it
  int channel = 0;         // those of a group's collectives, or from one rank to another, go one after the other
  std::int64_t bytes = 0;  // read and written, of all its ranks' tensors
  std::string group = {};  // its name
  std::int64_t sent = 0;   // bytes, by the rank that sends most (comm/traffic.h)
  bool number = false;     // counts and norms, not tensors (plan/message_tally.h)
};

struct RankScript {
  std::vector<ScriptPiece> pieces;
  RankStep step;
  std::int64_t samples = 0;  // that it is given per step
};

struct StepScript {
  std::vector<RankScript> ranks;
  std::vector<ScriptMessage> messages;
};

// Two steps, since what the first leaves under way is waited for in the second. `data`: what ranks share. `prices`: of
// kernels, where work is to have seconds. `kind`: of the second step, where replicas take local steps.
StepScript step_script(const RunSpec& run, const RunData& data, const meta::KernelPricer* prices = nullptr,
                       StepKind kind = StepKind::usual);

}  // namespace lockstep
