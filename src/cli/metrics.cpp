#include "cli/metrics.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/output_file.h"
#include "spec/text/text_input.h"
#include "telemetry/metrics_csv.h"
#include "telemetry/partial_file.h"

namespace lockstep {

namespace {

struct MetricsSettings {
  std::string run, out;
  bool csv = false;
};

int run_metrics(const MetricsSettings& s) {
  const std::filesystem::path metrics = std::filesystem::path(s.run) / "metrics.jsonl";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(metrics, ignored))
    throw UserError(ExitCode::bad_input_file, fmt::format("{} holds no metrics.jsonl", quote_text(s.run)),
                    "name a run folder");
  MetricsCsvCounts counts;
  if (s.out.empty()) {
    counts = write_metrics_csv(metrics, [](std::string_view row) { std::fwrite(row.data(), 1, row.size(), stdout); });
  } else {
    require_output_file(s.out, fmt::format("--out {}", quote_text(s.out)));
    PartialFile file(s.out);
    counts = write_metrics_csv(metrics, [&](std::string_view row) { file.write(row); });
    file.finish();
    fmt::print("{}: {} rows\n", s.out, counts.rows);
  }
  if (counts.left_out > 0)
    fmt::print(stderr, "lockstep: {}: {} line{} no step or evaluation, and left out\n", metrics.string(),
               counts.left_out, counts.left_out == 1 ? " is" : "s are");
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_metrics(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<MetricsSettings>();
  CLI::App* command = app.add_subcommand("metrics", "Write the numbers of a run's steps for other programs");
  command->footer(
      "One row for each step and each evaluation of RUN/metrics.jsonl, digit for digit (RFC 4180). A running run may\n"
      "be read; a line that it has not finished is left out. docs/monitoring.md describes the columns.\n\n"
      "Examples: lockstep metrics runs/a --csv > a.csv\n"
      "          lockstep metrics runs/a --csv --out a.csv");
  command->add_option("run", settings->run, "Run folder")->required()->type_name("RUN");
  command->add_flag("--csv", settings->csv, "As comma-separated values; the only form so far")->required();
  command->add_option("--out", settings->out, "File to write, in place of standard output")->type_name("FILE");
  command->callback([settings, &chosen] { chosen = [settings] { return run_metrics(*settings); }; });
}

}  // namespace lockstep
