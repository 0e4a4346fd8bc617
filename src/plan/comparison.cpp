#include "plan/comparison.h"

#include <algorithm>

#include "base/error.h"
#include "plan/compared_trial.h"
#include "train/pinning.h"

namespace lockstep {

namespace {

template <class Value>
double mean_of(const std::vector<ComparedRank>& ranks, Value ComparedRank::*value) {
  double sum = 0;
  for (const ComparedRank& rank : ranks) sum += static_cast<double>(rank.*value);
  return sum / static_cast<double>(ranks.size());
}

}  // namespace

double ComparedLayout::mean_peak() const { return mean_of(ranks, &ComparedRank::peak); }
double ComparedLayout::step_seconds() const { return mean_of(ranks, &ComparedRank::step_seconds); }
double ComparedLayout::exposed_seconds() const { return mean_of(ranks, &ComparedRank::exposed_seconds); }

bool ComparedLayout::memory_as_planned() const {
  const ComparedRank& measured = fullest_rank();
  return measured.peak == fullest_plan.peak && measured.peaks == fullest_plan.peaks &&
         measured.rows == fullest_plan.rows && measured.host == fullest_plan.host &&
         measured.disk == fullest_plan.disk && measured.moved == fullest_plan.moved_in_all();
}

// Which rows of the embedding are summed, tokens say; planned are as many as can be.
bool ComparedLayout::messages_as_planned() const {
  const StepMessages& measured = sender_rank().messages;
  if (layout.embedding_gradient != EmbeddingGradient::dense)
    return measured.total().bytes_sent <= sender_plan.messages.total().bytes_sent;
  const std::int64_t planned = sender_plan.messages.total().bytes_sent * round_steps +
                               sender_plan.synchronization.total().bytes_sent * (round_steps / every);
  return measured == sender_plan.messages && sender_rank().sent == planned;
}

double ComparedLayout::sent_per_step() const {
  return static_cast<double>(sender_plan.messages.total().bytes_sent) +
         static_cast<double>(sender_plan.synchronization.total().bytes_sent) / static_cast<double>(every);
}

bool Comparison::ok() const { return std::ranges::all_of(layouts, &ComparedLayout::ok); }

RunSpec laid_out(const RunSpec& run, const LayoutSpec& layout) {
  RunSpec spec = run;
  spec.layout = layout;
  spec.train.save_last = false;
  spec.train.save_every = spec.train.eval_every = 0;
  if (layout.zero != 3 || layout.reshard != Reshard::forward) spec.memory.gathered = 0;
  return spec;
}

std::vector<RunSpec> laid_out_runs(const RunSpec& run, const std::vector<LayoutSpec>& layouts) {
  std::vector<RunSpec> specs;
  for (const LayoutSpec& layout : layouts) {
    specs.push_back(laid_out(run, layout));
    validate(specs.back(), [&](std::string_view, std::string_view) { return "layout " + to_text(layout); });
  }
  return specs;
}

Comparison compare_costs(const RunSpec& run, const std::vector<LayoutSpec>& layouts, const ComparisonOptions& options) {
  const std::vector<RunSpec> specs = laid_out_runs(run, layouts);  // a mistake is reported before anything runs
  std::optional<RunData> own;
  const RunData& data = options.process ? options.process->data : own.emplace(run);
  Comparison comparison;
  std::vector<ComparedTrial> trials;
  trials.reserve(specs.size());
  for (const RunSpec& spec : specs) {
    trials.emplace_back(spec, data, options);
    const auto why = trials.back().why_it_does_not_fit();
    if (!why) continue;
    comparison.left_out.push_back({spec.layout, *why});
    trials.pop_back();
  }
  Calibrator calibrator(data, usable_cores(), options.wants_stop);
  for (ComparedTrial& trial : trials) {
    if (options.machine && options.wants_stop && options.wants_stop()) comparison.stopped = true;
    if (options.machine && !comparison.stopped) trial.predict(*options.machine);
  }
  for (ComparedTrial& trial : trials)
    if (options.forecasts && !options.machine && !comparison.stopped)
      comparison.stopped = !trial.forecast(calibrator, usable_cores());
  const std::int64_t rounds = std::min(options.rounds, options.steps);
  for (std::int64_t round = 0; round < rounds && !comparison.stopped; ++round)
    for (ComparedTrial& trial : trials) {
      if (options.begins) options.begins(trial.layout());
      comparison.stopped = !trial.round(options.steps / rounds + (round < options.steps % rounds ? 1 : 0));
      if (comparison.stopped) break;
    }
  for (ComparedTrial& trial : trials)
    if (trial.has_round()) comparison.layouts.push_back(trial.result());
  return comparison;
}

}  // namespace lockstep
