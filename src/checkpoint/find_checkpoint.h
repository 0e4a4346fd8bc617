// Finds the checkpoint that a user means by a path: one checkpoint, or the newest whole one of a run folder or of a
// folder of checkpoints.
#pragma once
#include <filesystem>

#include "checkpoint/checkpoint_reader.h"

namespace lockstep {

// Nothing when there is none. `report` is called for damaged ones that were skipped; a checkpoint that is named itself
// and damaged is a UserError (checkpoint).
std::optional<Checkpoint> find_checkpoint(const std::filesystem::path& path, const DamageReport& report = {});

// Of a run that continues blindly: nothing where no checkpoint was ever completed. UserError (checkpoint) naming the
// damaged ones, which are left as they are, where there are some and none is whole: to begin at step 0 there would
// throw away what somebody may still put right.
std::optional<Checkpoint> find_own_checkpoint(const std::filesystem::path& folder, const DamageReport& report = {});

// As find_checkpoint, and a UserError (checkpoint) when there is none.
Checkpoint require_checkpoint(const std::filesystem::path& path, const DamageReport& report = {});

// The manifest of the checkpoint that the path names, by names alone: of the one that `latest` names, whole or not.
// Nothing when there is none.
std::optional<std::filesystem::path> find_manifest(const std::filesystem::path& path);

}  // namespace lockstep
