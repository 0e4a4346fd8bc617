// What one rank does in a step and in evaluation, by its layout: which units it has, and its lists of actions, proven
// to fit those of all other ranks.
//
// Every rank finds the same cut and the same lists, by itself.
#pragma once
#include <memory>
#include <vector>

#include "model/model.h"
#include "spec/layout/layout_spec.h"
#include "spec/pipeline/schedule.h"

namespace lockstep {

// The lists of all stages, which ranks that share a stage have alike.
struct StepLists {
  PipelineSchedule schedule;
  std::vector<StepShape> shapes;             // by stage
  std::vector<std::vector<Action>> actions;  // by stage
};

struct RankStep {
  StepShape shape;
  PipelineSchedule schedule;
  std::vector<Action> actions;
  std::vector<Action> evaluation;          // the forwards alone
  std::shared_ptr<const StepLists> lists;  // that it is of
};

struct RankStepOptions {
  const Model& model;
  const LayoutSpec& layout;
  int stage = 0;
  std::int64_t samples = 1;                  // of a micro-batch of rank 0, by which units are weighed
  std::int64_t seq = 1;                      // tokens of a whole sample, likewise
  Device runs_on = Device::cpu;              // likewise
  std::int64_t kept_bytes = 0;               // of gathered weights that may stay (spec/step/laid_out_step.h)
  std::vector<Action> actions{};             // the step in another order; empty: by the layout's schedule
  std::shared_ptr<const StepLists> lists{};  // that another rank of the same run has found; none: they are found here
};
RankStep rank_step(const RankStepOptions& options);

// Whether any stage makes weights' gradients in steps of their own.
bool weights_come_later(const LayoutSpec& layout);

// How the layout cuts the model in depth.
Stages stages_of(const RankStepOptions& options, const PipelineSchedule& schedule);

}  // namespace lockstep
