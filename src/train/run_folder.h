// A run folder: everything that a run writes, and who may write there.
//
//   run.toml         the resolved run file
//   plan.json        what it was expected to take (plan/plan_file.h)
//   metrics.jsonl    one line per step (telemetry/step_record.h)
//   arrivals.jsonl   of an asynchronous run: in which order gradients were applied (telemetry/arrivals.h)
//   ranks/           of each rank: where its time went, step by step, and what it is doing (telemetry/rank_records.h,
//                    telemetry/rank_now.h)
//   events.jsonl     what happened and when, of every rank (telemetry/event_log.h)
//   trace.json       what every rank did in some steps, and when, if asked for (telemetry/trace.h)
//   tensorboard/     event files for TensorBoard, unless the run has none (telemetry/tensorboard.h)
//   log.txt          what a person was told besides the steps: evaluations, checkpoints, warnings
//   checkpoints/     checkpoint/checkpoint_folder.h
//   .lock            held while a process trains here
//
// Failure: UserError (usage) when another process trains there, or it holds a run that is neither to be resumed nor to
// be replaced, (bad_input_file) when a pipe, a folder or a device has the name of one of its files, which would hold or
// swallow what is written, (environment) when the folder cannot be made; EnvironmentError for the disk later on.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "telemetry/arrivals.h"

namespace lockstep {

class RunFolder {
 public:
  enum class Existing { refuse, keep, replace };  // what to do about a run that is there

  RunFolder(std::filesystem::path path, Existing existing);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path arrivals() const { return path_ / kArrivalsName; }
  std::filesystem::path run_file() const { return path_ / "run.toml"; }
  std::filesystem::path log() const { return path_ / "log.txt"; }
  std::filesystem::path plan() const { return path_ / "plan.json"; }
  std::filesystem::path events() const { return path_ / "events.jsonl"; }
  std::filesystem::path trace() const { return path_ / "trace.json"; }
  std::filesystem::path ranks() const { return path_ / "ranks"; }
  std::filesystem::path tensorboard() const { return path_ / "tensorboard"; }

  void write_run_file(const std::string& toml) const;  // beside, then renamed
  void write_plan(const std::string& json) const;      // likewise

 private:
  void replace(const std::filesystem::path& file, const std::string& text) const;

  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // folders that were not there, the innermost first
  int lock_ = -1;
};

// Whether a run was begun there.
bool holds_a_run(const std::filesystem::path& folder);

// Logs why a run has ended, from a rank that is a process of its own: rank 0 may be the one that is gone, so nobody
// else may know. Does nothing where the log ends with it already, or there is no log. Never throws.
void log_end_of_rank(const std::filesystem::path& folder, int rank, const std::string& reason) noexcept;

}  // namespace lockstep
