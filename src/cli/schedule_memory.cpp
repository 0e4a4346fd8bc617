#include "cli/schedule_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/integers.h"
#include "plan/plan.h"
#include "spec/model/presets.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {
constexpr std::int64_t kMostPlanned = 1 << 16;  // layers times micro-batches and stages
}

std::optional<std::int64_t> planned_activations(const PlannedRun& run, ScheduleKind kind, const PipelineShape& shape) {
  const std::optional<ModelSpec> model = preset(run.model);
  if (!model) {
    const std::vector<std::string_view> names = preset_names();
    throw UserError(ExitCode::usage, fmt::format("--model {}: there is no such preset", quote_text(run.model)),
                    fmt::format("did you mean '{}'?", nearest_word(run.model, names)));
  }
  if (run.seq % run.tp != 0)
    throw UserError(ExitCode::usage, fmt::format("--seq {}: it is not a multiple of --tp {}", run.seq, run.tp),
                    fmt::format("use --seq {}", round_up(run.seq, run.tp)));
  RunSpec spec;
  spec.model = *model;
  spec.model.layers = std::max<std::int64_t>(spec.model.layers, std::int64_t{shape.stages} * shape.chunks);
  if (spec.model.layers * (shape.micro + shape.stages) > kMostPlanned) return std::nullopt;
  spec.data.synthetic = SyntheticSpec{};
  spec.data.seq = run.seq;
  spec.train.global_batch = shape.micro;
  spec.train.save_last = false;
  spec.precision.compute = Precision::bf16;
  spec.layout = {.pp = shape.stages, .schedule = kind, .chunks = shape.chunks, .tp = run.tp, .micro = shape.micro};
  spec.layout.sp = LayoutSpec::usual_sp(run.tp);
  spec.layout.stages = StageRule::even();
  validate(spec,
           [&](std::string_view, std::string_view key) { return fmt::format("--model {} with --{}", run.model, key); });
  std::int64_t most = 0;
  for (const Plan& stage : plan_stages(spec)) most = std::max(most, stage.peak_of(Tag::activation));
  return most;
}

std::string to_text(const PlannedRun& run) {
  return fmt::format("{} split evenly, a sample of {} tokens per micro-batch, bf16{}", run.model, run.seq,
                     run.tp > 1 ? fmt::format(", tp={}", run.tp) : "");
}

}  // namespace lockstep
