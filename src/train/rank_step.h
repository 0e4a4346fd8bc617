// What one rank does in a step and in evaluation: which units it has, and its lists of actions, checked against those
// of all other ranks (spec/step/world_faults.h).
//
// Every rank finds the same stages and lists by itself, from the layout. Where there are parameter servers, a stage's
// list is split: its updates, and the exchange of updated tied weights, are the servers', all that computes is the
// workers', and reductions, the norm and publishing are of both.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "model/model.h"
#include "spec/layout/layout_spec.h"
#include "spec/pipeline/pipedream.h"
#include "spec/pipeline/schedule.h"

namespace lockstep {

// A stage of a pipeline without a flush (spec/pipeline/pipedream.h). Its list of actions is `begin`, `steady` and
// `drain` after each other.
struct UnflushedStep {
  PipeDreamStage stage;
  std::size_t steady, drain;       // where these begin in the list
  std::vector<Action> reductions;  // of one update
  StepActivations::InTurn turn;    // as many micro-batches as are in flight
};

// The lists of all stages; ranks of one stage have the same.
struct StepLists {
  PipelineSchedule schedule;
  std::vector<StepShape> shapes;              // by stage
  std::vector<std::vector<Action>> actions;   // by stage
  std::vector<UnflushedStep> unflushed = {};  // by stage, where the layout's schedule has no flush
};

struct RankStep {
  StepShape shape;
  PipelineSchedule schedule;
  std::vector<Action> actions;
  std::vector<Action> evaluation;  // the forwards alone
  std::optional<UnflushedStep> unflushed = {};
  std::shared_ptr<const StepLists> lists;  // that these were taken from
};

struct RankStepOptions {
  const Model& model;
  const LayoutSpec& layout;
  int stage = 0;
  bool serves = false;       // a parameter server's part of its stage
  std::int64_t samples = 1;  // of a micro-batch of rank 0; with the next two, for the costs of units
  std::int64_t seq = 1;      // tokens of a whole sample
  Device runs_on = Device::cpu;
  std::int64_t kept_bytes = 0;               // of gathered weights that may stay (spec/step/laid_out_step.h)
  LoraSpec lora = {};                        // of the model
  bool offloads_weights = false;             // between their uses
  std::vector<Action> actions{};             // the step in another order; empty: by the layout's schedule
  std::shared_ptr<const StepLists> lists{};  // of another rank of the same run; none: made here
};
RankStep rank_step(const RankStepOptions& options);

// Whether any stage computes weight gradients in actions apart from the input gradients (zero-bubble schedules).
bool weights_come_later(const LayoutSpec& layout);

// Which units each stage has.
Stages stages_of(const RankStepOptions& options, const PipelineSchedule& schedule);

}  // namespace lockstep
