#include "cli/presets.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/text_table.h"
#include "spec/model/presets.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

using nlohmann::ordered_json;

ordered_json preset_json(std::string_view name, const ModelSpec& m) {
  return {{"name", name},
          {"family", name_of(m.family)},
          {"parameters", parameter_count(m)},
          {"layers", m.layers},
          {"width", m.width},
          {"heads", m.heads},
          {"kv_heads", m.kv_heads},
          {"ffn_width", m.ffn_width},
          {"vocabulary", m.vocabulary},
          {"max_positions", m.max_positions}};
}

int run_presets(bool json) {
  ordered_json all = ordered_json::array();
  for (const std::string_view name : preset_names()) all.push_back(preset_json(name, *preset(name)));
  if (json) {
    fmt::print("{}\n", all.dump(2));
    return static_cast<int>(ExitCode::done);
  }
  TextTable table{.title = "models of model.preset",
                  .heads = {"name", "family", "parameters", "layers", "width", "heads", "key/value", "feed-forward",
                            "vocabulary", "positions"},
                  .rows = {}};
  for (const ordered_json& model : all) {
    auto& row = table.rows.emplace_back();
    for (const ordered_json& value : model)
      row.push_back(value.is_string() ? value.get<std::string>() : grouped_digits(value.get<std::int64_t>()));
  }
  fmt::print("{}", table.plain());
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_presets(CLI::App& app, std::function<int()>& chosen) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("presets", "List the models that a run can name, with their sizes");
  command->footer(
      "A run file names one by preset = \"NAME\" in its [model], a command line by --set model.preset=NAME; single\n"
      "fields beside it change it.\n\nExample: lockstep plan --set model.preset=llama3-8b");
  command->add_flag("--json", *json,
                    "Print [{name, family, parameters, layers, width, heads, kv_heads, ffn_width, vocabulary, "
                    "max_positions}]");
  command->callback([json, &chosen] { chosen = [json] { return run_presets(*json); }; });
}

}  // namespace lockstep
