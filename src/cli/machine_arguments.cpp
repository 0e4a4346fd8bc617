#include "cli/machine_arguments.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <iterator>

#include "base/error.h"

namespace lockstep {

CLI::Option* MachineArguments::add_to(CLI::App& command) {
  CLI::Option* machine =
      command
          .add_option("--machine", name,
                      "A machine file, or one that comes with Lockstep (h100-sxm); --set machine.KEY=VALUE changes it")
          ->type_name("NAME|FILE");
  command.add_option("--nodes", nodes, "Of --machine: how many nodes it has [as its file says]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1000000}).description(""))
      ->type_name("N")
      ->needs(machine);
  return machine;
}

std::optional<MachineSpec> MachineArguments::read(RunArguments& run) const {
  constexpr std::string_view kSection = "machine.";
  std::vector<std::string> settings;
  for (const std::string& set : run.sets)
    if (set.starts_with(kSection)) settings.push_back(set.substr(kSection.size()));
  if (name.empty()) {
    if (settings.empty()) return std::nullopt;
    throw UserError(ExitCode::usage, fmt::format("--set machine.{}: no machine was named", settings.front()),
                    "add --machine NAME, as in --machine h100-sxm");
  }
  std::erase_if(run.sets, [&](const std::string& set) { return set.starts_with(kSection); });
  MachineSpec machine = find_machine(name);
  set_machine_fields(machine, settings);
  if (nodes > 0) machine.nodes = nodes;
  return machine;
}

}  // namespace lockstep
