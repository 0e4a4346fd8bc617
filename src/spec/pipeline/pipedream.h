// PipeDream: a pipeline that is not emptied at the end of a step, and keeps several versions of its weights instead.
//
// Between two points where somebody needs the whole state (a save, an evaluation, the end) a stage runs in the order of
// 1f1b over all micro-batches of all steps between them: a window. Stage s of p lags behind its forwards by
// a = p - 1 - s backwards, and so the forwards of a step run beside the last backwards of the step before it. No stage
// waits after its first step.
//
//   pipedream      a stage updates after the backward of every micro-batch: micro-batch i of a window makes its version
//                  i + 1. Its forward finds version i - a, and its backward uses that one again, of which a copy was
//                  stashed meanwhile: p - s versions at a time.
//   pipedream-2bw  a stage updates once per step: step k makes version k + 1, from gradients at version k - 1, which
//   all
//                  micro-batches of the step use on all stages: 2 versions at a time.
//
// A version before the window's first is the first: what version 0 is when the window begins.
//
// A window is three lists of actions, written for one step each: `begin` is the first step's, from an empty pipeline;
// `steady` is that of every step after it; `drain` follows the last step's and empties the pipeline. In each,
// micro-batches and versions are counted from the step's own: micro -1 is the last micro-batch of the step before, and
// version 0 is what the weights are before the first gradient of the step is applied. `drain` counts as the step would
// that does not come. A micro-batch lags no more than a step: at least p - 1 micro-batches are asked for.
//
// norm(m) is the stage's own, and so is the finite check: a norm over all stages would have to wait for them.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "spec/pipeline/schedule.h"
#include "spec/step/actions.h"

namespace lockstep {

// What a stage keeps.
struct PipeDreamStage {
  ScheduleKind kind = ScheduleKind::pipedream;
  int stages = 1, stage = 0, micro = 1;
  int lag() const { return stages - 1 - stage; }
  bool accumulates() const { return kind == ScheduleKind::pipedream_2bw; }
  int updates_per_step() const { return accumulates() ? 1 : micro; }
  // Copies of the weights beside those that are updated, and micro-batches between their forward and their backward.
  int stashes() const { return accumulates() ? 1 : lag(); }
  int in_flight() const { return lag() + 1; }
};

struct PipeDreamLists {
  std::vector<Action> begin, steady, drain;
  bool operator==(const PipeDreamLists&) const = default;
};

// `shape` is of one step and names the stage; nothing is tied, gathered or published.
PipeDreamLists pipedream_lists(ScheduleKind kind, const StepShape& shape);

// The list of a window of so many steps, in which micro-batches and versions are the window's.
std::vector<Action> window_of(const PipeDreamLists& lists, const PipeDreamStage& of, int steps);
// A window as if it were one step with a flush, for what knows nothing of versions: no norm but one at the end, and
// updates after it.
std::vector<Action> without_versions(const std::vector<Action>& window, const StepShape& shape);
// The shape of such a step.
StepShape window_shape(StepShape shape, int steps);

// The first reason why the lists of all stages, by stage, are no PipeDream, or nothing. Of windows of one to four steps
// (all longer ones repeat these), the stages' lists fit each other as those of any pipeline (spec/step/world_faults.h),
// none keeps more micro-batches in flight than its lag needs, and on each stage
//   forward(u, m, v), backward_input(u, m, v) and backward_weight(u, m, v) use one version of all units, which is there
//   that version is as old as the schedule says, and no older
//   norm(m)       comes after every reduce of the micro-batch, or of the step's last one, and once
//   update(u, m)  comes after norm(m), makes the next version of its unit, and loses none that is still to be used
//   stash(u, v)   keeps what the unit's weights are now, in the place of the oldest: no more than planned are kept
// `shape` is of one step, of any stage.
std::optional<std::string> find_pipedream_fault(ScheduleKind kind, const std::vector<PipeDreamLists>& stages,
                                                const StepShape& shape);

}  // namespace lockstep
