// The clock of a step whose ranks each have a device: what each stage computes and waits for, from the run's script
// (plan/stage_script.h) and a machine file.
//
// A stage computes in order and starts messages, which move beside it; it waits where its script waits. A message
// begins when all its ranks have started it and the one before it in its group is over. Messages that use one device's
// link in one direction at the same time share it equally, and while any moves, computing is slower by the machine's
// `overlap_slowdown`. Messages of tp and cp are between ranks that do the same at the same time, so a phase, with those
// inside it, takes a time of its own that is found once.
//
// Replicas (dp) that do the same are one on this clock. Where some have slow ranks, each different kind of replica is
// on it, and their reductions wait for the slowest.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "plan/message_prices.h"
#include "plan/stage_script.h"
#include "plan/step_spans.h"

namespace lockstep {

using ByAxis = std::array<double, kMeshAxes.size()>;  // seconds

// A phase by itself.
struct PhaseTime {
  double computed = 0;
  ByAxis waited{};  // for messages inside it
  double seconds() const { return computed + waited[0] + waited[1] + waited[2] + waited[3]; }
};
PhaseTime time_of(const PhaseScript& phase, const std::vector<MessagePrice>& prices,
                  const std::vector<StageMessage>& messages, double overlap_slowdown);

struct ClockOptions {
  // By kind of replica, by stage: how many times as long its computing takes. Empty: all replicas compute alike.
  std::vector<std::vector<double>> replicas = {};
  double jitter = 0;  // of every phase: the standard deviation of its time's logarithm
  std::uint64_t seed = 0;
  bool spans = false;  // of actions, which the bubble is made of
};

// Of the second of the script's two steps.
struct StageTimes {
  double begin = 0, end = 0;  // from the end of the stage's step before to its own
  double computed = 0;        // messages inside phases left out
  ByAxis waited{};            // by the axis of the message that it waited for; those inside phases included
  StepSpans::Step spans;
};

// By kind of replica, by stage; then by server of a stage, by stage, where there are parameter servers. ProgramError
// where ranks wait for each other for ever.
std::vector<std::vector<StageTimes>> run_clock(const WorldScript& script, const MachineSpec& machine,
                                               const ClockOptions& options = {});

}  // namespace lockstep
