// One run under several layouts, a few steps under each: what was predicted for each of them, and what it took.
//
// Ranks are threads of this process, or processes of which this is one. The ledger, the messages and the times of every
// rank are kept. The plan (plan/plan.h) of two ranks is compared with what was measured: of the one that held most
// bytes and of the one that sent most. Nothing is saved or evaluated, so bytes are those of training alone. Ranks of
// one process share their text, which rank 0 counts.
//
// A step is timed from the end of the one before, since what a step leaves under way (weights being published) is
// waited for in the next one; a barrier in between would hide it. A machine's speed drifts over minutes, so steps are
// taken in rounds, all layouts in turn in each; the first step of a round is not counted. Where times are forecast as
// well (plan/layout_forecast.h), all forecasts are made before the first layout runs. Waits and a pipeline's bubble are
// the host's, and not measured on a GPU; the bubble also needs all ranks on one host, whose clock they share.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/layout_forecast.h"
#include "plan/plan.h"
#include "plan/step_messages.h"
#include "spec/machine/link_spec.h"
#include "spec/machine/machine_spec.h"
#include "spec/run/run_spec.h"
#include "train/training_run.h"

namespace lockstep {

struct ComparedRank {
  std::array<std::int64_t, kTags> peaks{};  // bytes, by tag
  std::int64_t peak = 0;                    // of the whole
  Ledger::Rows rows;
  std::int64_t host = 0, disk = 0;  // bytes there, at most
  Staging::Traffic moved;           // bytes per step of what is offloaded, activations too
  StepMessages messages;            // of the last step
  std::int64_t sent = 0;            // bytes of tensors, of all steps that are timed of the last round
  double step_seconds = 0;          // median over steps, or over means of as many as are between synchronizations
  double exposed_seconds = 0;       // of waiting for messages per step; likewise
};

struct ComparedLayout {
  LayoutSpec layout;
  int threads = 1;  // of each rank
  std::vector<ComparedRank> ranks;
  int fullest = 0, sender = 0;               // the rank that held most bytes, and the one that sent most of them
  Plan fullest_plan = {}, sender_plan = {};  // of these, on meta
  std::int64_t tokens_a_step = 0;
  std::int64_t every = 1;                       // of local steps: between two synchronizations
  std::int64_t round_steps = 0;                 // of the last round, that are timed
  double loss = 0;                              // of the last step
  std::optional<double> bubble = {};            // of a pipeline: median over steps
  std::optional<LayoutForecast> forecast = {};  // where it was asked for
  // The furthest that the median step of a round is from the median of all rounds', over that: what the same layout
  // differs from itself. 0 of one round.
  double repeatability = 0;
  bool waits_measured = true;  // false: exposed_seconds means nothing

  const ComparedRank& fullest_rank() const { return ranks[static_cast<std::size_t>(fullest)]; }
  const ComparedRank& sender_rank() const { return ranks[static_cast<std::size_t>(sender)]; }
  double mean_peak() const;        // bytes, over ranks
  double step_seconds() const;     // mean over ranks
  double exposed_seconds() const;  // mean over ranks
  double tokens_a_second() const { return static_cast<double>(tokens_a_step) / step_seconds(); }
  double forecast_tokens_a_second() const { return static_cast<double>(tokens_a_step) / forecast->step_seconds; }
  // Of the forecast step's time, over the measured one: 0.1 is a tenth too long.
  double forecast_error() const { return forecast->step_seconds / step_seconds() - 1; }
  bool memory_as_planned() const;
  bool messages_as_planned() const;  // where rows of the embedding are summed: no more than planned
  // Bytes of tensors per step by the one that sends most, mean over steps: planned, which is also what was sent.
  double sent_per_step() const;
  bool ok() const { return memory_as_planned() && messages_as_planned(); }
};

struct Comparison {
  struct LeftOut {
    LayoutSpec layout;
    std::string why;
  };
  std::vector<ComparedLayout> layouts;
  std::vector<LeftOut> left_out = {};  // those that do not fit this machine
  bool stopped = false;                // before all of them had been tried
  bool ok() const;
};

// This process, where ranks are processes. All of them compare the same layouts, each of as many ranks as there are.
struct ComparedProcess {
  Communicator& ranks;                // all of them, on the host
  const RunData& data;                // its own
  TrainingRun::Connect connect = {};  // on GPUs: to the others there
  int threads = 1;
  int ranks_here = 1;  // on its host
};

struct ComparisonOptions {
  std::int64_t steps = 6;                              // that are timed, of each layout
  std::int64_t rounds = 3;                             // that they are taken in; at most as many as steps
  const MachineSpec* machine = nullptr;                // whose file predicts times, in place of a calibration
  bool forecasts = false;                              // times, too, from a calibration of some tenths of a second
  std::int64_t memory = 0;                             // bytes that a rank may take; 0: its share of what is free
  std::optional<LinkSpec> link = {};                   // a simulated one under ranks that are threads
  const ComparedProcess* process = nullptr;            // none: ranks are threads
  std::function<bool()> wants_stop = {};               // asked before every step, by rank 0
  std::function<void(const LayoutSpec&)> begins = {};  // called before each layout of each round
};

// The run's own layout is ignored. UserError when the run cannot be laid out so.
Comparison compare_costs(const RunSpec& run, const std::vector<LayoutSpec>& layouts, const ComparisonOptions& options);

// The run with this layout and what belongs to it alone. Nothing of it is checked.
RunSpec laid_out(const RunSpec& run, const LayoutSpec& layout);

// The runs of these layouts. UserError when the run cannot be laid out so.
std::vector<RunSpec> laid_out_runs(const RunSpec& run, const std::vector<LayoutSpec>& layouts);

// What is compared where nothing is named: central, ddp without and with overlap, ZeRO 1 to 3 with either grad_sync,
// ZeRO 3 that keeps its weights, and hybrid where the ranks have a divisor; where the model's heads allow it, every
// layer split over all ranks, with and without sequence parallelism, and over two where there are four ranks or more;
// where tokens and heads allow it, samples split over all ranks, as a ring and by exchanged heads; where it has layers
// enough, and the run several micro-batches, all ranks as stages of a pipeline, by every schedule. Micro-batches,
// uneven parts and reduction are those of the run's layout. One rank has nothing to choose.
std::vector<LayoutSpec> usual_layouts(const RunSpec& run, std::int64_t ranks);

}  // namespace lockstep
