#include "cli/refine_machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <deque>

#include "base/error.h"
#include "base/median.h"
#include "cli/text_table.h"
#include "plan/machine_refinement.h"
#include "spec/run/run_toml.h"
#include "spec/text/quantity.h"
#include "spec/text/text_input.h"
#include "telemetry/number_text.h"
#include "telemetry/report.h"
#include "train/training_run.h"

namespace lockstep {

namespace {

constexpr std::size_t kLeastSteps = 3;  // the first of them warms up

// A run that refines, with what its predictions need.
struct ReadRun {
  ReadRun(RunSpec of_run) : spec(std::move(of_run)), data(spec), stages(plan_stages(spec, data)) {}
  RunSpec spec;
  RunData data;
  std::vector<Plan> stages;
};

RefiningRun measured_of(const std::string& folder, const RunSpec& spec) {
  const std::vector<MeasuredStep> steps = measured_steps(read_run(folder));
  if (steps.size() < kLeastSteps)
    throw UserError(
        ExitCode::bad_input_file,
        fmt::format("{} has the times of {} steps, and {} are needed", quote_text(folder), steps.size(), kLeastSteps),
        "name a run of more steps");
  const PredictionScore score = score_prediction({.every = spec.sync.takes_local_steps() ? spec.sync.every : 1}, steps);
  RefiningRun run{.name = folder, .step_seconds = *score.step.measured, .ranks = spec.layout.ranks()};
  if (!score.exposed.measured) return run;
  run.exposed.emplace();
  for (std::size_t a = 0; a < kWaitAxes; ++a)
    (*run.exposed)[a] = score.by_axis[a] ? score.by_axis[a]->measured.value_or(0) : 0;
  return run;
}

std::string machine_of_runs(const std::deque<ReadRun>& runs, const std::vector<std::string>& folders) {
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (runs[r].spec.run.machine.empty())
      throw UserError(ExitCode::usage, fmt::format("{} was trained without run.machine", quote_text(folders[r])),
                      "name the file to refine: --machine NAME|FILE");
    if (runs[r].spec.run.machine != runs.front().spec.run.machine)
      throw UserError(
          ExitCode::usage,
          fmt::format("{} and {} name different machines", quote_text(folders.front()), quote_text(folders[r])),
          "name the file to refine: --machine NAME|FILE");
  }
  return runs.front().spec.run.machine;
}

std::string percent_text(double error) { return fmt::format("{:+.1f}%", 100 * error); }

void print_runs(const MachineRefinement& refined) {
  TextTable table{.title = "", .heads = {"run", "measured", "before", "error", "after", "error"}, .rows = {}};
  std::vector<double> before, after;
  for (const RefinedRun& run : refined.runs) {
    table.rows.push_back({run.name, seconds_text(run.measured), seconds_text(run.before),
                          percent_text(run.error_before()), seconds_text(run.after), percent_text(run.error_after())});
    before.push_back(std::abs(run.error_before()));
    after.push_back(std::abs(run.error_after()));
  }
  fmt::print("{}\nmedian error of a step: {:.1f}% before, {:.1f}% after\n", table.plain(), 100 * median(before),
             100 * median(after));
}

void print_changes(const MachineSpec& was, const MachineRefinement& refined) {
  const MachineSpec& is = refined.machine;
  std::vector<std::string> changes;
  const auto number = [&](const std::string& key, double before, double after) {
    if (before != after) changes.push_back(fmt::format("{} {:.4g} -> {:.4g}", key, before, after));
  };
  number("products.best", was.products.best, is.products.best);
  number("attention.forward", was.attention.forward, is.attention.forward);
  number("attention.backward", was.attention.backward, is.attention.backward);
  for (const auto& [kind, share] : is.kernels)
    number("kernels." + kind, was.kernels.contains(kind) ? was.kernels.at(kind) : 1, share);
  const auto rate = [&](const std::string& key, double before, double after) {
    if (before != after) changes.push_back(fmt::format("{} {:.3g} -> {:.3g} GB/s", key, before / 1e9, after / 1e9));
  };
  rate("sum_rate", was.sum_rate, is.sum_rate);
  rate("copy_rate", was.copy_rate, is.copy_rate);
  number("intra_node.efficiency", was.intra_node.efficiency, is.intra_node.efficiency);
  number("inter_node.efficiency", was.inter_node.efficiency, is.inter_node.efficiency);
  fmt::print("changed: {}\n", changes.empty() ? "nothing" : fmt::format("{}", fmt::join(changes, ", ")));
  if (!refined.messages)
    fmt::print(
        "messages stay as they were: no run waits along dp, cp or tp for a hundredth of its step, as predicted "
        "and as measured\n");
}

}  // namespace

MachineSpec refined_by_runs(const std::vector<std::string>& folders, const std::string& named) {
  std::deque<ReadRun> read;  // which predictions refer to
  std::vector<RefiningRun> runs;
  for (const std::string& folder : folders) {
    const std::filesystem::path file = std::filesystem::path(folder) / "run.toml";
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored))
      throw UserError(ExitCode::bad_input_file, fmt::format("{} is no run folder", quote_text(folder)),
                      "name the folder that `lockstep train` wrote");
    const RunSpec spec = read_run_file(file);
    runs.push_back(measured_of(folder, spec));
    const ReadRun& one = read.emplace_back(spec);
    runs.back().predict = [&one](const MachineSpec& machine) {
      return predict_step(one.spec, machine, one.data, one.stages);
    };
  }
  const MachineSpec machine = find_machine(named.empty() ? machine_of_runs(read, folders) : named);
  for (const ReadRun& run : read)
    require_machine(run.spec, machine, "name the file of the machine that the runs were trained on");
  MachineRefinement refined = refine_machine(machine, runs);
  print_runs(refined);
  print_changes(machine, refined);
  refined.machine.source += fmt::format("{}refined by the times of {} run{}", machine.source.empty() ? "" : "; ",
                                        runs.size(), runs.size() == 1 ? "" : "s");
  return refined.machine;
}

}  // namespace lockstep
