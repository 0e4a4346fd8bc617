#include "cli/report.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/output_file.h"
#include "cli/report_text.h"
#include "spec/text/text_input.h"
#include "telemetry/partial_file.h"
#include "telemetry/report.h"
#include "telemetry/run_reader.h"

namespace lockstep {

namespace {

struct ReportSettings {
  std::string run, baseline, html;
  bool json = false;
};

int run_report(const ReportSettings& s) {
  if (!s.html.empty()) require_output_file(s.html, fmt::format("--html {}", quote_text(s.html)));
  RunReader reader(s.run);
  std::optional<RunReader> baseline;
  if (!s.baseline.empty()) baseline.emplace(s.baseline);
  const RunRecords& run = reader.update();
  const Report report = make_report(run, baseline ? &baseline->update() : nullptr);
  if (!s.html.empty()) {
    PartialFile file(s.html);
    file.write(report_html(report, run));
    file.finish();
  }
  // A folder's name need not be UTF-8; what is not is replaced.
  if (s.json)
    fmt::print("{}\n", to_json(report).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  else
    fmt::print("{}", report_text(report));
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_report(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<ReportSettings>();
  CLI::App* command = app.add_subcommand("report", "Show what a run has come to, running or finished");
  command->footer(
      "Time and where it went, efficiency against another run of the same model, a pipeline's throughput over its\n"
      "ideal, quality, memory of each rank beside the plan, and stability. It reads the run folder and changes\n"
      "nothing. docs/monitoring.md explains each line.\n\n"
      "Examples: lockstep report runs/a\n"
      "          lockstep report runs/four-ranks --baseline runs/one-rank\n"
      "          lockstep report runs/a --html a.html");
  command->add_option("run", settings->run, "Run folder")->required()->type_name("RUN");
  command->add_option("--baseline", settings->baseline, "Run folder that tokens/s per rank are compared with")
      ->type_name("RUN");
  command->add_option("--html", settings->html, "Also write one file with plots, for a browser")->type_name("FILE");
  command->add_flag("--json", settings->json, "Print every number, as JSON");
  command->callback([settings, &chosen] { chosen = [settings] { return run_report(*settings); }; });
}

}  // namespace lockstep
