// Going on from a checkpoint: what may differ from the run that saved it does, with a word; what may not is refused.
//
// May differ: everything that says how long, how fast and in which pieces (steps, batch, learning rate and its
// schedule, decay, clipping, micro-batches, threads, evaluation, saving), and what gradients are summed in. May not:
// the model, the data and how it is cut into samples, the seed, the kind of optimizer and its momentum, the precision
// of what computes and of the moments: with those changed it would be another run. What the saved run chose by timing
// ([tuning] of its run file) is used on, unless the run brings its own.
//
// Failure: UserError (usage) naming the first setting that may not differ, or where train.steps is less than was done;
// UserError (checkpoint) when the checkpoint does not hold what the run needs.
#pragma once
#include <functional>
#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "train/training_run.h"

namespace lockstep {

// Fills the run's tensors from the checkpoint and returns where it stands. `note` hears a line for each setting that
// changed.
Progress resume(TrainingRun& run, const Checkpoint& checkpoint, const std::function<void(const std::string&)>& note);

// UserError (usage) where the run is to have fewer steps than the checkpoint has done. resume() asks too; before there
// are ranks it is told without any of them in its words.
void check_steps(const RunSpec& spec, const Checkpoint& checkpoint);

// Where a run that begins now stands.
Progress beginning(const TrainingRun& run);

}  // namespace lockstep
