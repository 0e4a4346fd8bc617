#include "cli/run_arguments.h"

#include <fmt/format.h>

#include "checkpoint/checkpoint_model.h"
#include "spec/layout_toml.h"
#include "spec/run_toml.h"

namespace lockstep {

void RunArguments::add_to(CLI::App& command) {
  command.add_option("run", file, "Run file (TOML); the built-in example when left out")->type_name("RUN.toml");
  command.add_option("--set", sets, "A setting over the file's, such as train.steps=300; may be given several times")
      ->type_name("SECTION.KEY=VALUE")
      ->allow_extra_args(false);
}

RunSpec RunArguments::read() const {
  // When a run is resumed, what its weights started from may be gone.
  const auto model_of = [this](const std::filesystem::path& from, const std::string& out) {
    std::optional<ModelSpec> model;
    if (!resumed.empty()) model = find_model(resumed == "auto" ? out : resumed);
    if (!model && !from.empty()) model = require_model(from);
    return model;
  };
  if (file.empty()) return parse_run_toml(example_run_toml(), "example", ".", sets, model_of);
  if (!text.empty()) return parse_run_toml(text, file, ".", sets, model_of);
  return read_run_file(file, sets, model_of);
}

void LayoutArguments::add_to(CLI::App& command, int most_ranks, const std::string& usual_ranks) {
  CLI::Option* count =
      command.add_option("--ranks", ranks, fmt::format("Ranks that share each batch: layout.dp [{}]", usual_ranks))
          ->check(CLI::Range(1, most_ranks).description(""))
          ->type_name("N");
  command.add_option("--layout", layout, "The whole layout, as in dp=4,micro=2; in place of the file's")
      ->type_name("KEY=VALUE,..")
      ->excludes(count);
}

RunSpec LayoutArguments::read(RunArguments arguments) const {
  if (ranks > 0) arguments.sets.push_back(fmt::format("layout.dp={}", ranks));
  RunSpec spec = arguments.read();
  if (layout.empty()) return spec;
  spec.layout = parse_layout(layout);
  validate(spec, [&](std::string_view, std::string_view) { return "--layout " + layout; });
  return spec;
}

}  // namespace lockstep
