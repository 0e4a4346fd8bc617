// The model that a checkpoint holds and what came with it: for a run whose file says model.from, and for an export.
//
// The model is known from manifests alone, so that a plan, or each of many processes, need not read a whole checkpoint.
// All checkpoints of a run have one model; loading one checks that it has that model too.
#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/hf_companions.h"
#include "spec/run/run_spec.h"

namespace lockstep {

// The run that wrote the checkpoint, as its manifest says.
RunSpec run_of(const Checkpoint& checkpoint);

// Of one checkpoint, or of the newest with a sound manifest of a run folder or a folder of checkpoints. Nothing when
// there is none.
std::optional<ModelSpec> find_model(const std::filesystem::path& path);

// The same, and a UserError (checkpoint) when there is none.
ModelSpec require_model(const std::filesystem::path& path);

// UserError (usage), naming the first field, unless the checkpoint's model is this one; dropout may differ.
void require_same_model(const Checkpoint& checkpoint, const ModelSpec& model);

// The files of a Hugging Face folder that it keeps, held to their checksums; UserError (checkpoint). A checkpoint that
// an older program wrote keeps none: then those of the folder that its run started from, as far as they are still
// there.
std::vector<HfCompanion> companions_of(const Checkpoint& checkpoint);

}  // namespace lockstep
