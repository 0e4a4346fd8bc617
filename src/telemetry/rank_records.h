// RUN/ranks/rank-00007.jsonl: the step records of one rank, sampled so that the file grows with the logarithm of the
// steps.
//
// Which steps, step_sampling.h says: n lines reach to about step
// every · kLinesBeforeDoubling · 2^(n / kLinesBeforeDoubling).
//
// Opening for a run that resumes keeps the lines of steps up to the checkpoint (step_lines.h) and continues with the
// interval that their number implies. A line that the disk does not take is kept and written later, within a bound;
// beyond it lines are dropped, counted, and not part of the number (appended_file.h). Only construction throws:
// EnvironmentError.
//
// Used by one thread at a time.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "telemetry/appended_file.h"
#include "telemetry/step_sampling.h"

namespace lockstep {

struct RankRecordsOptions {
  std::int64_t last_step = 0;                    // of the checkpoint that the run resumes from; 0 starts anew
  std::int64_t every = 1;                        // the first interval
  std::size_t most_kept = std::size_t{1} << 20;  // bytes held for a full disk: one process may have many ranks
};

class RankRecords {
 public:
  static constexpr std::int64_t kLinesBeforeDoubling = StepSampling::kLinesBeforeDoubling;

  // Makes RUN/ranks where it is missing.
  RankRecords(const std::filesystem::path& run_folder, int rank, const RankRecordsOptions& options = {});

  // Whether a record of this step is to be made; costs a division.
  bool wants(std::int64_t step) const { return sampling_.wants(step); }
  // `line` is a JSON object with that "step", without a newline. Does nothing for a step that is not wanted.
  void write(std::int64_t step, std::string_view line);

  std::int64_t interval() const { return sampling_.interval(); }
  std::int64_t lines() const { return sampling_.lines(); }        // in the file, or kept for it
  const std::string& failure() const { return file_.failure(); }  // why not all lines are written; empty: all are
  std::int64_t dropped() const { return file_.dropped(); }        // lines that will never be

 private:
  StepSampling sampling_;
  AppendedFile file_;
};

}  // namespace lockstep
