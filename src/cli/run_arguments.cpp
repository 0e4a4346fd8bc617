#include "cli/run_arguments.h"

#include "spec/run_toml.h"

namespace lockstep {

void RunArguments::add_to(CLI::App& command) {
  command.add_option("run", file, "Run file (TOML); the built-in example when left out")->type_name("RUN.toml");
  command.add_option("--set", sets, "A setting over the file's, such as train.steps=300; may be given several times")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
}

RunSpec RunArguments::read() const {
  if (file.empty()) return parse_run_toml(example_run_toml(), "example", ".", sets);
  return read_run_file(file, sets);
}

}  // namespace lockstep
