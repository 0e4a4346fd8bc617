// Records that are damaged: what was left out of every other finding.
//
// A run writes whole lines, and finishes a line that a full disk has cut when there is room again, so a line that is no
// record has been made by something else: a disk that lies, two programs that write to one folder, an editor. A last
// line without its end counts as none: a killed process leaves one.
#include <fmt/format.h>

#include "telemetry/doctor/rules.h"

namespace lockstep::doctor {

void find_damaged_records(const RunRecords& run, std::vector<Finding>& findings) {
  const std::int64_t lines = run.bad_lines, files = run.bad_files;
  if (lines == 0 && files == 0) return;
  const auto counted = [](std::int64_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  Finding finding{.name = "damaged_records", .severity = Severity::wrong};
  const bool one = lines + files == 1;
  finding.summary = fmt::format("{}{}{} of the run's records {} damaged, and {} left out",
                                lines > 0 ? counted(lines, "line") : "", lines > 0 && files > 0 ? " and " : "",
                                files > 0 ? counted(files, "file") : "", one ? "is" : "are", one ? "was" : "were");
  constexpr std::size_t kMost = 8;
  for (const auto& [file, bad] : run.bad_by_file) {
    if (finding.evidence.size() == kMost) {
      finding.evidence.push_back(fmt::format("and {} more files", run.bad_by_file.size() - kMost));
      break;
    }
    finding.evidence.push_back(bad == 1 ? file + ": 1 line is no record"
                                        : fmt::format("{}: {} lines are no records", file, bad));
  }
  finding.remedies = {
      "training itself reads none of them: weights and checkpoints are not affected, curves and findings may miss "
      "steps",
      fmt::format("let nothing else write to {}, and ask the system about its disk: `dmesg | grep -i error`",
                  run.folder.string()),
      fmt::format("{} drops such lines when the run is over", resume_command(run))};
  findings.push_back(std::move(finding));
}

}  // namespace lockstep::doctor
