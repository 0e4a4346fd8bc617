// Everything that a run has written about itself, read from its folder as plain data: for a running run as well as for
// a finished one.
//
//   RunReader reader("runs/example");
//   const RunRecords& run = reader.update();         // call again for what has been written since
//   for (const StepPoint& step : run.steps) …
//
// It only reads files, and takes no lock, so it cannot slow or stop a run. update() reads what was appended:
// metrics.jsonl, events.jsonl and ranks/*.jsonl grow by whole lines, and half a last line is left for the next call. A
// file that was replaced or has become shorter, because the run resumed or was begun anew, is read anew; `generation`
// then changes. ranks/*.now, plan.json and the end of log.txt are read whole each time they have changed.
//
// Any file may be missing, damaged, or of a later version: fields that are not known are skipped, lines that are not
// records are counted in `bad_lines` and skipped. Only the constructor throws: UserError (bad_input_file) when the
// folder is none of a run. A number that the file does not have, or has as null, is NaN (`known()` asks), a whole one
// is -1.
//
// What is held is bounded, whatever the files hold:
// - all steps and evaluations up to kMostSteps (2 · 10⁶, some 400 MB); beyond it every second one is dropped and from
//   then on only every second is taken, again and again: `every` is the distance of steps that are held. `last`, and
//   the counts of steps, are of all lines;
// - of each rank the newest kMostRankSteps records, from the last kMostRankBytes of its file;
// - the newest kMostEvents events of the kind "step" and as many others, from the last kMostEventBytes of the file;
// - the last kMostLogLines lines of log.txt.
//
// Used by one thread at a time.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "telemetry/followed_lines.h"
#include "telemetry/goodput.h"
#include "telemetry/launch_state.h"
#include "telemetry/mfu_band.h"
#include "telemetry/plan_file.h"
#include "telemetry/process_state.h"
#include "telemetry/rank_now.h"
#include "telemetry/run_event.h"
#include "telemetry/time_account.h"

namespace lockstep {

inline constexpr float kUnknownTime = std::numeric_limits<float>::quiet_NaN();

using SecondsByUse = std::array<float, kTimeUses>;  // by TimeUse; 0 where there is none

// One line of a step. `mean` and `most` are over all ranks; all NaN where the line has no times.
struct StepPoint {
  std::int64_t step = -1;
  double loss = kUnknown, grad_norm = kUnknown, lr = kUnknown;
  double seconds = kUnknown;  // data included, evaluation and saving not
  double tokens_per_s = kUnknown, mfu = kUnknown;
  double time = kUnknown;   // seconds since 1970
  double bytes = kUnknown;  // held by rank 0 after the step, all tags
  float loss_z = kUnknownTime;
  float bubble = kUnknownTime;  // share of the step
  // Of asynchronous steps, of local steps where replicas agreed, and of compressed gradients (step_record.h).
  float staleness = kUnknownTime, divergence = kUnknownTime, compression_error = kUnknownTime;
  std::int32_t slowest_rank = -1;
  bool updated = true;
  bool overflow = false;  // not updated, and the next step has half the loss scale
  SecondsByUse mean{}, most{};

  bool has_times() const { return slowest_rank >= 0; }
  double total() const;  // seconds of all uses, mean over ranks
  double share(TimeUse use) const { return total() > 0 ? mean[static_cast<std::size_t>(use)] / total() : 0; }
};

struct EvaluationPoint {
  std::int64_t step = -1;
  double loss = kUnknown;
  double accuracy = kUnknown;  // share of next tokens that were the likeliest
  double time = kUnknown;
};

struct SentOnAxis {
  std::int64_t calls = 0, bytes = 0;
};
using BytesOfTags = std::map<std::string, std::int64_t>;
using SentOnAxes = std::map<std::string, SentOnAxis>;  // "dp", "pp", "cp", "tp", "numbers"

// What only the newest line of a step is kept for.
struct LastStepDetail {
  BytesOfTags bytes, peak_bytes;              // of rank 0
  SentOnAxes sent;                            // by rank 0
  std::array<int, kTimeUses> rank_of_most{};  // by TimeUse: the rank that has `most`
};

// One line of ranks/rank-N.jsonl.
struct RankPoint {
  std::int64_t step = -1;
  float seconds = 0;
  SecondsByUse uses{};

  double waited() const;
  double busy() const;  // neither waiting nor saving nor evaluating
};

struct RankHistory {
  std::deque<RankPoint> steps;    // the newest, in order
  std::int64_t lines = 0;         // that were read
  std::int64_t bad_lines = 0;     // that were no records
  BytesOfTags bytes, peak_bytes;  // of the newest line that has them
  SentOnAxes sent;                // of the newest line
};

struct RankStatus {
  RankNow now;
  ProcessState process = ProcessState::unknown;
};

struct RunRecords {
  std::filesystem::path folder;
  double read_at = 0;                                 // seconds since 1970 when it was last read
  std::optional<bool> running;                        // a process of this host trains there; nothing: not known
  std::optional<std::int64_t> disk_free, disk_bytes;  // where the folder is
  RunPlan plan;

  std::vector<StepPoint> steps;  // in the file's order
  std::int64_t every = 1;        // steps in `steps` are multiples of this, but the newest
  StepPoint last;                // step -1: there is none
  RunMfu mfu;                    // of all lines
  LastStepDetail detail;         // of `last`
  std::int64_t step_lines = 0, not_updated = 0, overflows = 0;  // the last are none of those before
  std::int64_t first_not_updated = -1;                          // steps; -1: none
  std::int64_t first_bad_loss = -1;                             // the first step whose loss or norm is null
  std::vector<EvaluationPoint> evaluations;

  std::map<int, RankHistory> ranks;
  std::map<int, RankStatus> now;
  std::deque<RunEvent> events;        // of all kinds but "step"
  std::deque<RunEvent> step_events;   // of the kind "step"
  GoodputAccount goodput;             // of all lines
  std::optional<LaunchState> launch;  // of a run that `lockstep launch` keeps going, or has
  std::deque<std::string> log;        // its last lines
  // Folders of checkpoints/ that have a manifest, by their steps: a checkpoint is renamed to that when it is whole.
  std::map<std::int64_t, std::string> checkpoints;

  std::int64_t bad_lines = 0;                       // of metrics.jsonl, events.jsonl and ranks/*.jsonl
  std::int64_t bad_files = 0;                       // ranks/*.now and launch.json that could not be read
  std::map<std::string, std::int64_t> bad_by_file;  // "metrics.jsonl" → bad lines in it; of a rank's .now 1
  std::int64_t generation = 0;                      // changes when metrics.jsonl is read anew
};

struct RunReaderOptions {
  std::size_t most_steps = 2'000'000, most_rank_steps = 512, most_events = 1 << 16, most_log_lines = 500;
  std::int64_t most_rank_bytes = 256 << 10, most_event_bytes = 256 << 20;
};

// All of it, once.
RunRecords read_run(const std::filesystem::path& folder);

// Forgets ranks from `ranks` on: their files are of an earlier attempt with more of them.
void forget_ranks_from(std::int64_t ranks, RunRecords& run);

// Whether there is anything of a run in that folder.
bool looks_like_a_run(const std::filesystem::path& folder);

class RunReader {
 public:
  explicit RunReader(std::filesystem::path folder, const RunReaderOptions& options = {});

  const RunRecords& update();
  const RunRecords& records() const { return run_; }
  RunRecords take() { return std::move(run_); }  // the last thing that is asked of it

 private:
  void read_metrics();
  void read_metrics_line(std::string_view line);
  void add_step(const StepPoint& point);
  void read_ranks();
  void read_events();
  void read_log();
  void find_rank_files();
  void find_checkpoints();
  void read_launch();

  RunReaderOptions options_;
  RunRecords run_;
  FollowedLines metrics_, events_, log_;
  std::map<int, FollowedLines> rank_lines_;
  std::filesystem::file_time_type plan_written_{};
  std::int64_t bad_metrics_ = 0, bad_events_ = 0;
  std::map<int, std::filesystem::path> now_files_;
};

}  // namespace lockstep
