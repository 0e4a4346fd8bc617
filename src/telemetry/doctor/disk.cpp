// A disk that is full, or was.
//
// While it is full neither log.txt nor the files of ranks can say so, so the disk itself is asked. A run needs some
// hundred bytes per step and rank: below kLeastFree nothing useful is written.
#include <fmt/format.h>

#include <optional>

#include "telemetry/doctor/rules.h"
#include "telemetry/number_text.h"

namespace lockstep::doctor {

namespace {
constexpr std::int64_t kLeastFree = 128 << 10;
}  // namespace

void find_disk_trouble(const RunRecords& run, std::vector<Finding>& findings) {
  // What was refused and not written since: lines and checkpoints, each of which is reported when it succeeds again.
  std::optional<std::string> lines, checkpoint;
  for (const std::string& line : log_of_last_attempt(run)) {
    const bool of_checkpoint = line.find("checkpoint") != std::string::npos;
    const bool full = line.find("No space left on device") != std::string::npos ||
                      line.find("Disk quota exceeded") != std::string::npos ||
                      line.find("File too large") != std::string::npos;
    if (full) (of_checkpoint ? checkpoint : lines) = line;
    if (line.ends_with(": checkpoint saved")) checkpoint.reset();
    if (line == "metrics.jsonl is written again") lines.reset();
  }
  const std::optional<std::string>& refused = checkpoint ? checkpoint : lines;
  const bool full_now = run.disk_free && *run.disk_free < kLeastFree;
  if (!full_now && !refused) return;
  Finding finding{.name = "full_disk", .severity = Severity::stopped};
  finding.summary = full_now ? fmt::format("the disk of {} is full", run.folder.string())
                             : fmt::format("the disk of {} did not take what the run wrote", run.folder.string());
  if (run.disk_free)
    finding.evidence.push_back(
        fmt::format("{} of {} are free there", byte_text(*run.disk_free), byte_text(run.disk_bytes.value_or(0))));
  if (refused) finding.evidence.push_back("log.txt: " + *refused);
  if (full_now && run.last.step >= 0)
    finding.evidence.push_back(fmt::format("the last step on the disk is {}", run.last.step));
  finding.remedies = {
      "free space there: a run that is under way continues, and writes what it has kept",
      "keep fewer checkpoints with train.keep, or save less often with train.save_every",
      run.checkpoints.empty()
          ? fmt::format("put the run on another disk: `lockstep train {} --out FOLDER` begins there",
                        shell_quoted((run.folder / "run.toml").string()))
          : fmt::format("put the run on another disk: {} continues there", resume_command(run, "--out FOLDER"))};
  findings.push_back(std::move(finding));
}

}  // namespace lockstep::doctor
