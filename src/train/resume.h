// Resumes from a checkpoint: settings that may differ from the saved run's are reported, others are refused.
//
// May differ: the layout, the device, how long and how fast the run trains (steps, batch, learning rate and its
// schedule, decay, clipping, threads, evaluation, saving), the type in which gradients are summed, and the loss scale.
// May not: the model, the data and how it is split into samples, the seed, the kind of optimizer and its momentum, the
// precision of computation, of the masters and of the moments: with those changed it would be another run. What the
// saved run chose by timing ([tuning] of its run file) stays in use, unless the run brings its own.
//
// Failure: UserError (usage) naming the first setting that may not differ, or where train.steps is less than was done;
// UserError (checkpoint) when the checkpoint does not hold what the run needs.
#pragma once
#include <functional>
#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "train/training_run.h"

namespace lockstep {

// Fills the run's tensors from the checkpoint and returns its progress. `note` gets a line for each setting that
// changed.
Progress resume(TrainingRun& run, const Checkpoint& checkpoint, const std::function<void(const std::string&)>& note);

// The tensors alone: weights, moments, and what compression owes ([sync] feedback). Where the checkpoint has none of
// that, the run owes nothing; what the run has no use for is dropped, with a note. All ranks call it.
void load_state(TrainingRun& run, const Checkpoint& checkpoint, const std::function<void(const std::string&)>& note);

// UserError (usage) where the run is to have fewer steps than the checkpoint has done. resume() checks this too; called
// before there are ranks, the message names none.
void check_steps(const RunSpec& spec, const Checkpoint& checkpoint);

// The progress of a run that begins now.
Progress beginning(const TrainingRun& run);

}  // namespace lockstep
