#include "cli/plan.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/plan_view.h"
#include "cli/run_arguments.h"
#include "plan/plan.h"

namespace lockstep {

void add_plan(CLI::App& app, std::function<int()>& chosen) {
  auto arguments = std::make_shared<RunArguments>();
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("plan", "Predict memory and work of a run, to the byte, without running it");
  command->footer(
      "The real set-up and one real step run on a device that holds and computes nothing, and its ledger is printed.\n"
      "Any size works on any machine.\n\n"
      "Example: lockstep plan --set model.preset=llama3.1-405b --set data.seq=8192");
  arguments->add_to(*command);
  command->add_flag("--json", *json,
                    "Print {parameters, …, peak_bytes, steady_bytes, tags{tag: {steady, peak}}, units[…]}");
  command->callback([arguments, json, &chosen] {
    chosen = [arguments, json] {
      const RunSpec spec = arguments->read();
      const Plan plan = plan_run(spec);
      if (*json)
        fmt::print("{}\n", plan_json(spec, plan).dump(2));
      else
        fmt::print("{}\n\n{}\n", plan_table(spec, plan), unit_table(plan));
      return static_cast<int>(ExitCode::done);
    };
  });
}

}  // namespace lockstep
