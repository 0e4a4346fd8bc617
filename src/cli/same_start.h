// Checks that all ranks of a run start from the same: what each has read, from whatever path, and the weights
// (cli/agree.h).
//
// All ranks call each of these at the same point. Where something differs, all of them throw AllRefuse: with 4 for data
// and imported weights, 6 for checkpoints, 5 for weights that were made from the same settings and files.
#pragma once
#include <optional>

#include "checkpoint/checkpoint_reader.h"
#include "train/training_run.h"

namespace lockstep {

// Reads the data of this rank's process.
void read_same_data(std::optional<RunData>& data, const RunSpec& spec, Communicator& ranks);
// The Hugging Face folder that weights are imported from, if there is one.
void require_same_import(const RunSpec& spec, Communicator& ranks);
void require_same_checkpoint(const Checkpoint& checkpoint, Communicator& ranks);
// Of parameters that several ranks hold. Before the first step.
void require_same_weights(TrainingRun& run);

}  // namespace lockstep
