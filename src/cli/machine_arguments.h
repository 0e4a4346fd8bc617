// The arguments that name a machine: --machine NAME or FILE, --nodes, and --set machine.KEY=VALUE over the file's.
#pragma once
#include <optional>
#include <string>

#include "cli/run_arguments.h"
#include "spec/machine/machine_spec.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lockstep {

struct MachineArguments {
  std::string name;  // empty: none was given
  std::int64_t nodes = 0;

  CLI::Option* add_to(CLI::App& command);
  // Takes the settings of the machine out of the run's. Nothing where no machine was named; settings of one are then
  // refused.
  std::optional<MachineSpec> read(RunArguments& run) const;
};

}  // namespace lockstep
