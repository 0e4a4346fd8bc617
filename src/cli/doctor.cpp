#include "cli/doctor.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/plan_of_run_file.h"
#include "spec/run/run_toml.h"
#include "telemetry/doctor/doctor.h"

namespace lockstep {

namespace {

struct DoctorSettings {
  std::string folder;
  bool json = false;
};

// A run folder by itself; what its run file says is known, whether or not a plan is there.
RunRecords examined_run(const std::string& folder) {
  RunRecords run = read_run(folder);
  try {
    fill_plan(run.plan, read_run_file(run.folder / "run.toml"));
  } catch (const UserError&) {  // damaged, or of a model that is no longer there: the records speak for themselves
  }
  if (run.plan.ranks) forget_ranks_from(*run.plan.ranks, run);
  return run;
}

void print_json(const RunRecords& run, const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings)
    list.push_back({{"name", finding.name},
                    {"severity", name_of(finding.severity)},
                    {"summary", finding.summary},
                    {"evidence", finding.evidence},
                    {"remedies", finding.remedies},
                    {"cost", finding.cost}});
  nlohmann::ordered_json report{{"healthy", findings.empty()}, {"findings", list}};
  if (findings.empty()) report["text"] = healthy_text(run);
  fmt::print("{}\n", report.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_paragraph(const Finding& finding) {
  fmt::print("{} ({}): {}.\n", finding.name, name_of(finding.severity), finding.summary);
  for (const std::string& line : finding.evidence) fmt::print("  seen: {}\n", line);
  int number = 0;
  for (const std::string& remedy : finding.remedies) fmt::print("  {}. {}\n", ++number, remedy);
}

int run_doctor(const DoctorSettings& s) {
  const RunRecords run = examined_run(s.folder);
  const std::vector<Finding> findings = diagnose(run);
  if (s.json) {
    print_json(run, findings);
  } else if (findings.empty()) {
    fmt::print("{}\n", healthy_text(run));
  } else {
    bool first = true;
    for (const Finding& finding : findings) {
      if (!std::exchange(first, false)) fmt::print("\n");
      print_paragraph(finding);
    }
  }
  return static_cast<int>(findings.empty() ? ExitCode::done : ExitCode::check_failed);
}

}  // namespace

void add_doctor(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<DoctorSettings>();
  CLI::App* command = app.add_subcommand("doctor", "Say what is wrong with a run, and what to do about it");
  command->footer(
      "Reads the records in a run folder, of a run that is under way or over, and touches nothing. Recognizes ranks "
      "that\n"
      "hang or were killed, a full disk, values that are not finite, a loss that jumps, and what makes a run slow: "
      "data,\n"
      "links, a slow rank, shared cores, a throttled GPU, small micro-batches, missing overlap. What stopped the run "
      "comes\nfirst, then what costs most; docs/troubleshooting.md has them all.\n\n"
      "Exit code 0: healthy; 1: there are findings.\n\n"
      "Examples: lockstep doctor runs/example\n"
      "          lockstep doctor runs/example --json");
  command->add_option("run", settings->folder, "Run folder")->required()->type_name("RUN");
  command->add_flag("--json", settings->json, "Print the findings as JSON");
  command->callback([settings, &chosen] { chosen = [settings] { return run_doctor(*settings); }; });
}

}  // namespace lockstep
