// What one training step did, and the line of metrics.jsonl that says so.
//
// A line is one JSON object: step, loss, loss_z, grad_norm, lr, step_ms, tokens_per_s, model_flops_per_s, mfu, updated,
// loss_scale and overflow (of runs that scale the loss), staleness_mean and staleness_max (of asynchronous runs: over
// the step's updates), divergence (of local steps, where replicas agreed) and compression_error (with feedback),
// bytes{tag}, peak_bytes{tag}, time; numbers at full precision,
// null where a number is not finite or not known. An evaluation is a line {step, eval_loss, eval_accuracy, time}.
//
// Where the time went, if that is known: uses{use: {mean_ms, max_ms, rank}} over all ranks, `rank` the one that has the
// maximum, without uses that no rank has; bubble, the share of the ranks' step that went into waiting for other stages,
// where there are some; slowest_rank, which was busy longest; sent{axis: {calls, bytes, ms, of_link}} of rank 0, where
// of_link is the rate of these bytes in that time over that of the link, if it is known.
// Times run from the end of the last record to the end of this one, so they also hold what was saved and evaluated in
// between, which step_ms leaves out.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "telemetry/arrivals.h"
#include "telemetry/time_account.h"

namespace lockstep {

// Bytes by tag, in the ledger's order.
using BytesByTag = std::vector<std::pair<std::string, std::int64_t>>;

struct SentByAxis {
  std::string_view axis;
  std::int64_t calls = 0, bytes = 0;
  double seconds = 0;               // in which at least one message was under way
  std::optional<double> link = {};  // bytes a second that a rank can send, as measured
  // The share of that rate which the messages had; nothing where it is not known.
  std::optional<double> of_link() const;
};

struct StepRecord {
  std::int64_t step = 0;  // steps done, this one included
  double loss = 0;
  std::optional<double> loss_z =
      {};  // standard deviations from the mean of the losses before; nothing while there are few
  double grad_norm = 0;
  double lr = 0;
  double seconds = 0;
  double tokens_per_s = 0;
  double model_flops_per_s = 0;
  std::optional<double> mfu = {};  // nothing when the machine's peak is not known
  bool updated = true;
  std::optional<double> loss_scale = {};     // of this step; nothing where the loss is not scaled
  bool overflow = false;                     // not updated: too large for the scale, which the next step has halved
  std::optional<std::int64_t> skipped = {};  // batches that were left out so far, of a run that rewinds
  // Of a step after which replicas agreed: the root of the mean of |w - mean of w|² over them, before.
  std::optional<double> divergence = {};
  std::optional<double> compression_error = {};  // norm of what rank 0 has left out over its gradient's
  std::vector<Arrival> arrivals = {};            // of an asynchronous step, its updates
  std::vector<WorkerChange> changes = {};        // and which workers were lost or have joined
  BytesByTag bytes, peak_bytes;
  double time = 0;                     // seconds since 1970
  bool times_follow = false;           // they are known when all ranks have told
  std::vector<TimesByUse> times = {};  // by rank; empty: not known
  std::vector<SentByAxis> sent = {};   // by this rank
};

struct EvalRecord {
  std::int64_t step = 0;
  double loss = 0;
  double time = 0;
  std::optional<double> accuracy = {};  // share of next tokens that were the likeliest; nothing where none counts
};

std::string to_json_line(const StepRecord& record);
std::string to_json_line(const EvalRecord& record);

// What one rank held: bytes by tag, and the most of each so far.
struct HeldMemory {
  BytesByTag bytes, peak_bytes;
  bool operator==(const HeldMemory&) const = default;
};
// Where the time of a step went, of one rank: {step, ms, uses{use: ms}, sent{as above}, bytes{tag}, peak_bytes{tag}},
// without an end of line. No memory: that of the line before.
std::string rank_json(std::int64_t step, const TimesByUse& times, const std::vector<SentByAxis>& sent,
                      const HeldMemory* memory = nullptr);

// The share of the ranks' steps that went into waiting for other stages of a pipeline, saving and evaluating left out.
double bubble_of(const std::vector<TimesByUse>& times);

// Over ranks, of one use.
struct UseOverRanks {
  double mean = 0, most = 0;  // seconds
  int rank = 0;               // that has most of it
};
UseOverRanks over_ranks(const std::vector<TimesByUse>& times, TimeUse use);
int slowest_rank(const std::vector<TimesByUse>& times);
// "compute 71%, wait_dp 12%, …", the largest first, without those below a hundredth; "" of no time.
std::string shares_text(const TimesByUse& times);

double seconds_since_1970();

}  // namespace lockstep
