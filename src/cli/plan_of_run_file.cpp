#include "cli/plan_of_run_file.h"

#include "spec/layout/layout_toml.h"

namespace lockstep {

namespace {
template <class Field, class Value>
void fill(std::optional<Field>& field, const Value& value) {
  if (!field) field = Field(value);
}
}  // namespace

void fill_plan(RunPlan& plan, const RunSpec& spec) {
  const LayoutSpec& layout = spec.layout;
  fill(plan.layout, to_text(layout));
  fill(plan.device, name_of(spec.run.device));
  fill(plan.precision, name_of(spec.precision.compute));
  fill(plan.recompute, name_of(spec.memory.recompute));
  fill(plan.ranks, layout.ranks());
  fill(plan.steps, spec.train.steps);
  fill(plan.tokens_a_step, spec.train.global_batch * spec.data.seq);
  fill(plan.micro, layout.micro);
  fill(plan.micro_batch, spec.train.global_batch / (layout.dp * layout.micro));
  fill(plan.seq, spec.data.seq);
  fill(plan.global_batch, spec.train.global_batch);
  fill(plan.bucket, layout.bucket << 20);
  fill(plan.zero, layout.zero);
  fill(plan.overlap, layout.overlap == Switch::on);
  fill(plan.lr, spec.optimizer.learning_rate);
  fill(plan.clip, spec.optimizer.clip);
  fill(plan.warmup, spec.schedule.warmup);
  if (plan.axes.empty()) plan.axes = {{"dp", layout.dp}, {"pp", layout.pp}, {"cp", layout.cp}, {"tp", layout.tp}};
}

}  // namespace lockstep
