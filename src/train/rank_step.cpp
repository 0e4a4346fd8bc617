#include "train/rank_step.h"

#include "model/unit_costs.h"
#include "spec/laid_out_step.h"
#include "spec/pipeline_step.h"
#include "spec/shard.h"
#include "spec/stage_cut.h"
#include "spec/world_faults.h"

namespace lockstep {

Stages stages_of(const RankStepOptions& o, const PipelineSchedule& schedule) {
  const int chunks = static_cast<int>(schedule.stage_of.size());
  Stages stages{.begins = {0}, .stage_of = schedule.stage_of};
  if (chunks == 1) return stages;
  const ModelSpec& spec = o.model.spec();
  if (o.layout.stages == kStagesByCost)
    stages.begins = cut_by_cost(
        unit_costs(Model(spec, o.samples, o.seq, o.model.dtype(), {.runs_on = o.runs_on}), o.runs_on), chunks);
  else if (o.layout.stages == kStagesEven)
    stages.begins = cut_evenly(spec.layers, chunks);
  else
    stages.begins = cut_by_hand(parse_stages(o.layout.stages).value());
  return stages;
}

RankStep rank_step(const RankStepOptions& o) {
  RankStep step{.shape = o.model.step_shape(static_cast<int>(o.layout.micro)),
                .schedule = schedule_of(o.layout),
                .actions = {},
                .evaluation = {}};
  step.shape.stages = stages_of(o, step.schedule);
  const Shard cut{.index = 0, .count = o.layout.shards()};
  std::vector<std::int64_t> unit_bytes;
  for (int u = 0; u < o.model.units(); ++u)
    unit_bytes.push_back(cut.padded(o.model.unit(u).layout().owned()) * size_of(o.model.dtype()));

  // The lists of all stages, which ranks that share a stage have alike.
  const bool ahead = o.layout.overlap == Switch::on;
  WorldLists world{.shape = step.shape, .ranks = {}};
  for (int s = 0; s < static_cast<int>(o.layout.pp); ++s) {
    StepShape shape = step.shape;
    shape.stage = s;
    shape = laid_out(shape, o.layout, {.unit_bytes = unit_bytes, .kept_bytes = o.kept_bytes});
    world.ranks.push_back(o.actions.empty() ? pipeline_step(step.schedule, shape, ahead) : o.actions);
    if (o.layout.schedule_file.empty() && o.actions.empty())
      world.most_in_flight.push_back(most_in_flight(o.layout.schedule, step.schedule.shape, s));
    if (s == o.stage) step.shape = shape;
  }
  world.shape = step.shape;
  const auto fault = find_world_fault(world);
  if (fault && !o.layout.schedule_file.empty())  // it may ask for more messages at a time than are sent
    throw UserError(ExitCode::usage, fmt::format("{}: {}", o.layout.schedule_file, *fault),
                    "let stages take in turn what others send");
  LOCKSTEP_CHECK(!fault, "the list of actions is no step: {}", *fault);
  step.actions = world.ranks[static_cast<std::size_t>(o.stage)];
  step.evaluation = pipeline_forward(step.schedule, step.shape, ahead);
  return step;
}

}  // namespace lockstep
