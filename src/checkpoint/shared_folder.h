// Whether all ranks see one folder: they may be on hosts that share a file system, or that were meant to.
//
// Rank 0 leaves a token there, a file with a unique text, and the others look for it. A file system of several hosts
// may show it to the others a moment late, so they look again until a limit.
#pragma once
#include <filesystem>
#include <string>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/disk.h"
#include "comm/communicator.h"

namespace lockstep {

inline constexpr const char* kTokenName = "token";

// Writes and syncs the file; returns its text.
std::string leave_token(const std::filesystem::path& file, const Disk& disk);

// Returns once the file has this text. UserError (environment), with a remedy, when it has not after `seconds`.
void find_token(const std::filesystem::path& file, const std::string& text, double seconds);

// Before a run begins: makes the folder, unless it is there, and proves that all ranks see it. All ranks call it;
// nothing of it is left. Fails as all_or_none() does (all_or_none.h).
void check_shared(const CheckpointFolder& folder, Communicator& ranks, const Disk& disk = Disk());

}  // namespace lockstep
