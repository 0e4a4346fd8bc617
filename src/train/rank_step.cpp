#include "train/rank_step.h"

#include <algorithm>

#include "model/unit_costs.h"
#include "spec/layout/shard.h"
#include "spec/layout/stage_cut.h"
#include "spec/pipeline/stage_step.h"
#include "spec/step/laid_out_step.h"
#include "spec/step/world_faults.h"

namespace lockstep {

namespace {
bool asks_ahead(const RankStepOptions& o) { return o.layout.overlap == Switch::on; }
}  // namespace

bool weights_come_later(const LayoutSpec& layout) {
  if (layout.schedule_file.empty())
    return layout.schedule == ScheduleKind::zb_h1 || layout.schedule == ScheduleKind::zb_v;
  for (const std::vector<ChunkAction>& stage : schedule_of(layout).stages)
    if (std::ranges::find(stage, ChunkStep::backward_weight, &ChunkAction::step) != stage.end()) return true;
  return false;
}

Stages stages_of(const RankStepOptions& o, const PipelineSchedule& schedule) {
  const int chunks = static_cast<int>(schedule.stage_of.size());
  Stages stages{.begins = {0}, .stage_of = schedule.stage_of};
  if (chunks == 1) return stages;
  const ModelSpec& spec = o.model.spec();
  switch (o.layout.stages.form) {
    case StageRule::Form::cost:
      stages.begins = cut_by_cost(
          unit_costs(Model(spec, o.samples, o.seq, o.model.dtype(), {.runs_on = o.runs_on, .lora = o.lora}), o.runs_on),
          chunks);
      break;
    case StageRule::Form::even:
      stages.begins = cut_evenly(spec.layers, chunks);
      break;
    case StageRule::Form::layers:
      stages.begins = cut_by_hand(o.layout.stages.layers);
      break;
  }
  for (int& begin : stages.begins) begin = o.model.of_blocks().first_of(begin);  // no block is on two stages
  return stages;
}

namespace {

// As many micro-batches as the stage has in flight, all forwards before all backwards.
StepActivations::InTurn turn_of(const PipeDreamStage& of, StepShape shape) {
  shape.micro = of.in_flight();
  const PipelineSchedule schedule = make_schedule(ScheduleKind::afab, {.stages = of.stages, .micro = shape.micro});
  return {.actions = pipeline_step(schedule, shape, false), .shape = shape};
}

// The three lists of each stage after each other.
void find_unflushed(const RankStepOptions& o, StepShape shape, StepLists& lists) {
  std::vector<PipeDreamLists> stages;
  for (int s = 0; s < static_cast<int>(o.layout.pp); ++s) {
    shape.stage = s;
    lists.shapes.push_back(shape);
    stages.push_back(pipedream_lists(o.layout.schedule, shape));
    const auto& [begin, steady, drain] = stages.back();
    const PipeDreamStage of{
        .kind = o.layout.schedule, .stages = static_cast<int>(o.layout.pp), .stage = s, .micro = shape.micro};
    std::vector<Action>& all = lists.actions.emplace_back(begin);
    all.insert(all.end(), steady.begin(), steady.end());
    all.insert(all.end(), drain.begin(), drain.end());
    UnflushedStep& step = lists.unflushed.emplace_back(UnflushedStep{.stage = of,
                                                                     .steady = begin.size(),
                                                                     .drain = begin.size() + steady.size(),
                                                                     .reductions = {},
                                                                     .turn = turn_of(of, shape)});
    const auto reduces = [](const Action& action) { return action.kind == ActionKind::reduce; };
    const auto first = std::ranges::find_if(steady, reduces);
    std::ranges::copy_if(steady, std::back_inserter(step.reductions),
                         [&](const Action& action) { return reduces(action) && action.micro == first->micro; });
  }
  const auto fault = find_pipedream_fault(o.layout.schedule, stages, shape);
  LOCKSTEP_CHECK(!fault, "the lists of actions are no steps without a flush: {}", *fault);
}

StepLists find_lists(const RankStepOptions& o) {
  StepLists lists{.schedule = schedule_of(o.layout), .shapes = {}, .actions = {}};
  StepShape shape = o.model.step_shape(static_cast<int>(o.layout.micro));
  shape.stages = stages_of(o, lists.schedule);
  if (o.layout.unflushed()) {
    LOCKSTEP_CHECK(o.actions.empty(), "steps without a flush in another order");
    find_unflushed(o, shape, lists);
    return lists;
  }
  const Shard cut{.index = 0, .count = o.layout.shards()};
  std::vector<std::int64_t> unit_bytes;
  for (int u = 0; u < o.model.units(); ++u)
    unit_bytes.push_back(
        (cut.padded(o.model.unit(u).layout().owned()) + cut.padded(o.model.unit(u).layout().frozen())) *
        size_of(o.model.dtype()));

  WorldLists world{.shape = {}, .ranks = {}};
  for (int s = 0; s < static_cast<int>(o.layout.pp); ++s) {
    shape.stage = s;
    lists.shapes.push_back(laid_out(
        shape, o.layout, {.unit_bytes = unit_bytes, .kept_bytes = o.kept_bytes, .offloaded = o.offloads_weights}));
    world.ranks.push_back(o.actions.empty() ? pipeline_step(lists.schedule, lists.shapes.back(), asks_ahead(o))
                                            : o.actions);
    if (o.layout.schedule_file.empty() && o.actions.empty())
      world.most_in_flight.push_back(most_in_flight(o.layout.schedule, lists.schedule.shape, s));
  }
  world.shape = lists.shapes.front();
  const auto fault = find_world_fault(world);
  if (fault && !o.layout.schedule_file.empty())  // it may ask for more messages at a time than are sent
    throw UserError(ExitCode::usage, fmt::format("{}: {}", o.layout.schedule_file, *fault),
                    "let stages take in turn what others send");
  LOCKSTEP_CHECK(!fault, "the list of actions is no step: {}", *fault);
  lists.actions = std::move(world.ranks);
  return lists;
}

}  // namespace

namespace {

// What a parameter server does of its stage's list, or the ranks that compute do.
std::vector<Action> part_of_list(std::vector<Action> all, bool serves) {
  std::erase_if(all, [serves](const Action& action) {
    switch (action.kind) {
      case ActionKind::reduce:
      case ActionKind::norm:
      case ActionKind::publish:
        return false;
      case ActionKind::update:
      case ActionKind::send_tied_weight:
      case ActionKind::receive_tied_weight:
        return !serves;
      default:
        return serves;
    }
  });
  return all;
}

}  // namespace

RankStep rank_step(const RankStepOptions& o) {
  const auto lists = o.lists ? o.lists : std::make_shared<const StepLists>(find_lists(o));
  const auto stage = static_cast<std::size_t>(o.stage);
  RankStep step{.shape = lists->shapes[stage],
                .schedule = lists->schedule,
                .actions = lists->actions[stage],
                .evaluation = pipeline_forward(lists->schedule, lists->shapes[stage], asks_ahead(o)),
                .lists = lists};
  if (!lists->unflushed.empty()) step.unflushed = lists->unflushed[stage];
  if (o.layout.dp_kind == DpKind::server) {
    step.actions = part_of_list(std::move(step.actions), o.serves);
    if (o.serves) step.evaluation.clear();
  }
  return step;
}

}  // namespace lockstep
