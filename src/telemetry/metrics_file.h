// metrics.jsonl: appended one line at a time.
//
// Each line is whole when write() returns, unless the disk does not take it: then it is kept and written later
// (appended_file.h). Opening for a run that resumes from a checkpoint first drops the lines of steps after it
// (step_lines.h), and says what was dropped. Failure of opening: EnvironmentError naming the file and what the system
// said.
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "telemetry/appended_file.h"
#include "telemetry/event_log.h"

namespace lockstep {

class MetricsFile {
 public:
  // Keeps the lines of steps up to `last_step`; 0 keeps none.
  MetricsFile(const std::filesystem::path& path, std::int64_t last_step);

  // Steps whose lines were dropped; nothing where the file had no step.
  const std::optional<LostSteps>& lost() const { return lost_; }

  void write(const std::string& line) { file_.write(line); }
  const std::string& failure() const { return file_.failure(); }  // why not all lines are written; empty: all are
  std::int64_t dropped() const { return file_.dropped(); }        // lines that will never be

 private:
  int open(const std::filesystem::path& path, std::int64_t last_step);

  std::optional<LostSteps> lost_;
  AppendedFile file_;
};

}  // namespace lockstep
