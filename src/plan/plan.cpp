#include "plan/plan.h"

#include <vector>

#include "base/error.h"
#include "spec/model_flops.h"
#include "telemetry/number_text.h"
#include "train/training_run.h"

namespace lockstep {

std::int64_t Plan::current(Tag tag) const {
  std::int64_t total = 0;
  for (const auto& [key, count] : rows)
    if (key.first == tag) total += count.current;
  return total;
}

Plan plan_run(const RunSpec& spec) {
  TrainingRun run(spec, Device::meta, "");
  run.init_weights();
  meta::Stream& stream = meta::Stream::of(run.stream());
  stream.work() = {};
  run.step({});
  const meta::Work executed = stream.work();
  if (spec.train.eval_every > 0 && run.data().has_evaluation()) run.evaluate();
  run.save({});

  Plan plan{.parameters = parameter_count(spec.model),
            .tokens_a_step = run.tokens_a_step(),
            .model_flops = model_flops(spec.model, spec.train.global_batch, spec.data.seq),
            .executed = executed,
            .peak = run.ledger().peak(),
            .steady = run.ledger().current(),
            .rows = run.ledger().rows()};
  const Model& model = run.replica().model();
  for (int u = 0; u < model.units(); ++u) plan.stored += model.unit(u).layout().owned();
  for (int t = 0; t < kTags; ++t) plan.peaks[t] = run.ledger().peak(static_cast<Tag>(t));
  return plan;
}

namespace {

// A cut of the batch into more micro-batches that would fit, with its peak.
std::optional<std::pair<std::int64_t, std::int64_t>> micro_that_fits(RunSpec spec, std::int64_t available) {
  const std::int64_t before = spec.layout.micro;
  for (std::int64_t micro = before + 1; micro <= spec.train.global_batch; ++micro) {
    if (spec.train.global_batch % micro != 0) continue;
    spec.layout.micro = micro;
    const Plan plan = plan_run(spec);
    if (plan.peak <= available) return std::pair{micro, plan.peak};
  }
  return std::nullopt;
}

}  // namespace

void require_fit(const RunSpec& spec, const Plan& plan, std::int64_t available) {
  if (plan.peak <= available) return;
  std::string tags;
  for (int t = 0; t < kTags; ++t)
    if (plan.peaks[t] > 0)
      tags += fmt::format("{}{} {}", tags.empty() ? "" : ", ", name_of(static_cast<Tag>(t)), byte_text(plan.peaks[t]));
  std::string remedy = "use a smaller model, a shorter data.seq, or a machine with more memory";
  if (const auto fits = micro_that_fits(spec, available))
    remedy = fmt::format("layout.micro = {} fits: {}", fits->first, byte_text(fits->second));
  throw UserError(
      ExitCode::does_not_fit,
      fmt::format("the run needs {} and {} are free ({})", byte_text(plan.peak), byte_text(available), tags), remedy);
}

}  // namespace lockstep
