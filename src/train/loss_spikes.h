// Loss spikes: which losses are one, and which batches are left out because of them (docs/fault-tolerance.md, "Loss
// spikes").
//
// A loss is compared with up to a hundred before it (telemetry/z_score.h). With train.loss_spikes = rewind, one that is
// more than train.spike_z standard deviations above their mean makes all ranks go back to the newest saved state and
// leave the step's batch out: its place in the order of samples is passed over, and every later batch moves up by one.
// All that decides is a function of losses, which are equal on all ranks, and of state that checkpoints keep: a run
// that is interrupted and resumed decides as one that was not.
//
// One thread uses it.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "spec/run/run_spec.h"
#include "telemetry/z_score.h"
#include "train/training_run.h"

namespace lockstep {

class LossSpikeGuard {
 public:
  LossSpikeGuard(const TrainSpec& spec, const Progress& progress);

  // The standard deviations by which this loss is above those before, where the run rewinds and that is a spike.
  std::optional<double> spike_of(double loss) const;
  bool may_rewind() const { return std::ssize(skipped_) < spec_.most_rewinds; }
  // The loss of a step that counts; how unusual it is.
  std::optional<double> add(double loss) { return usual_.add(loss); }

  // The first sample of the batch of a step that has not been done: `step` is at least progress.step.
  std::int64_t first_sample(const Progress& progress, std::int64_t step) const;
  // Leaves out the batch that begins there, from a saved state on.
  void skip(std::int64_t first, const Progress& saved);
  // What checkpoints keep; nothing of a run that does not rewind.
  std::optional<LossSpikeState> state() const;

 private:
  const TrainSpec spec_;
  ZScore usual_;
  std::vector<std::int64_t> skipped_;
};

// The run's newest whole checkpoint of that step or before; empty: there is none. All ranks call it and are told the
// same, no save being under way.
std::string find_saved_state(TrainingRun& run, std::int64_t step, const std::function<void(const std::string&)>& note);
// Fills the run's tensors from it and returns the progress that was saved. All ranks call it, no step being under way.
// Failure: that of reading a checkpoint, on all ranks.
Progress go_back(TrainingRun& run, const Progress& progress, const std::string& saved_state);

}  // namespace lockstep
