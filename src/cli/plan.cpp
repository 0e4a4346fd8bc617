#include "cli/plan.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/plan_view.h"
#include "cli/run_arguments.h"
#include "plan/plan.h"

namespace lockstep {

namespace {
constexpr int kMostPlannedRanks = 1'000'000;  // as many as a layout may name
}  // namespace

void add_plan(CLI::App& app, std::function<int()>& chosen) {
  auto arguments = std::make_shared<RunArguments>();
  auto layout = std::make_shared<LayoutArguments>();
  auto json = std::make_shared<bool>(false), picture = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("plan", "Predict memory and work of a run, to the byte, without running it");
  command->footer(
      "The real set-up and one real step run on a device that holds and computes nothing, and its ledger is printed.\n"
      "Any size works on any machine, and any number of ranks: it is rank 0 that is shown, or, of a pipeline, the "
      "rank\n"
      "that needs most.\n\n"
      "Examples: lockstep plan --set model.preset=llama3.1-405b --set data.seq=8192\n"
      "          lockstep plan my.toml --layout dp=64,zero=3 --set train.global_batch=64");
  arguments->add_to(*command);
  layout->add_to(*command, kMostPlannedRanks, "1");
  command->add_flag(
      "--json", *json,
      "Print {parameters, …, peak_bytes, steady_bytes, tags{tag: {steady, peak}}, units[…], messages{…}}");
  command->add_flag("--picture", *picture, "Draw the actions of a step instead: a line per unit, a column per phase")
      ->excludes("--json");
  command->callback([arguments, layout, json, picture, &chosen] {
    chosen = [arguments, layout, json, picture] {
      const RunSpec spec = layout->read(*arguments);
      if (*picture && spec.model.layers > kMostDrawnLayers)
        throw UserError(ExitCode::usage, fmt::format("--picture: {} layers are too many to draw", spec.model.layers),
                        fmt::format("use model.layers = {} or less, which repeat", kMostDrawnLayers));
      const std::vector<Plan> stages = plan_stages(spec);
      const Plan& plan = fullest(stages);
      if (*picture) {
        for (const Plan& stage : stages)
          fmt::print("{}{}\n", stages.size() > 1 ? fmt::format("rank {}\n", stage.rank) : "", stage.picture);
        fmt::print(
            "F forward  I backward, inputs  W backward, weights  N norm  U update\n"
            "= its weights are whole, another unit computes  s its gradient's sum is under way  p it is published\n{}",
            stages.size() > 1 ? "> it is sent to another stage  < it was asked for from one\n" : "");
      } else if (*json)
        fmt::print("{}\n", plan_json(spec, plan).dump(2));
      else
        fmt::print("{}\n\n{}{}\n", plan_table(spec, plan), stages.size() > 1 ? stage_table(stages) + "\n" : "",
                   unit_table(plan));
      return static_cast<int>(ExitCode::done);
    };
  });
}

}  // namespace lockstep
