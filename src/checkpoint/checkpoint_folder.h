// The folder of a run's checkpoints: its names, and how a new checkpoint is added to it.
//
//   DIR/step-00000100/manifest.json                       what the checkpoint holds (manifest.h)
//   DIR/step-00000100/state-00000-of-00002.safetensors    slices of tensors, at least a file for each rank that has any
//   DIR/step-00000100/hf-tokenizer.json                   what came with a Hugging Face model (hf_companions.h)
//   DIR/latest                                            the name of the newest, as text
//
// save_checkpoint does this, in order. It removes leftovers of saves that were killed. It writes everything into
// DIR/.partial-step-…, syncs every file, writes the manifest last, then syncs the folder itself. It renames the folder
// to step-… and syncs DIR; it replaces `latest` in the same manner. It reads the checkpoint back from the disk and
// verifies its checksums. Only then does it remove older ones, except for the `keep` - 1 of the highest steps, each
// renamed to .trash-… first. (One whose state was checked, whole_checkpoints.h, stays until `keep` newer ones are of
// checked state too.) So at every moment every step-… is whole, and a process killed anywhere leaves the new
// checkpoint or the one before.
//
// Only whole checkpoints count against `keep`, and only those are removed: a damaged one stays until its own step is
// saved again, since somebody may need what is left of it.
//
// Each rank writes the state files of its own pieces, all at once, when it has seen that the folder rank 0 made is the
// folder it sees (shared_folder.h). When all are done, rank 0 does everything from the manifest on. Before a byte is
// written every rank has proven that the pieces of all ranks cover each tensor exactly (state_files.h).
//
// A step that exists already is swapped with the new one atomically, and removed when the new one has been read back;
// where that fails, it gets its name back. (On a file system that cannot swap names, such as NFS, the old one is moved
// away first, and a kill between the two leaves only older steps.)
//
// A slice that is a whole tensor is stored under its real shape as "part/name", another under "part/name:begin-end",
// and strided rows, as a matrix, under "part/name:begin-end:row/pitch".
//
// Failure: EnvironmentError, on all ranks (all_or_none.h says who throws what); the partial folder is removed and all
// older checkpoints are as they were. A checkpoint that does not read back as written is removed and named.
// StateRefused for a state that `finite_weights` does not let pass (finite.h), before a byte is written. One run writes
// to a folder at a time.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/hf_companions.h"
#include "checkpoint/state.h"
#include "checkpoint/whole_checkpoints.h"
#include "comm/communicator.h"
#include "tensor/stream.h"

namespace lockstep {

inline constexpr std::int64_t kStateFileLimit = std::int64_t{4} << 30;
inline constexpr const char* kLatestName = "latest";

struct CopyGenerations;
class CheckpointBackup;

struct CheckpointFolder {
  std::filesystem::path path;
  std::int64_t keep = 2;                      // checkpoints left after a save, the new one included; at least 1
  std::int64_t file_limit = kStateFileLimit;  // bytes of tensors a state file holds, unless a single slice has more
  double seen_within = 10;                    // seconds in which other hosts must see what rank 0 has put there
  const std::vector<HfCompanion>* companions = nullptr;  // rank 0 writes them into each; they outlive the saves
  bool finite_weights = false;                           // a state with a weight that is not finite is refused
  WholeCheckpoints* whole = nullptr;   // what is known of the others; none: they are read at each save
  CheckpointBackup* backup = nullptr;  // a second folder (backup.h); rank 0's
  CopyGenerations* copies = nullptr;   // it is in memory, and each host's own (state_copy.h); none: on a disk
  Stream* stream = nullptr;            // of the device that pieces may be on, or beside; none: all are on the host
};

// `pieces` are on the host, or where the folder's stream reaches them; they do not change meanwhile. All ranks call it,
// with the same step, each with the pieces that it writes (state_share.h where all hold the same; none is fine; one
// without elements stands for a tensor that others have): together they cover each (part, name) exactly, in any order.
// The folder's `keep` and the rest of `progress` are rank 0's. `ranks` are on the host, and their deadline is long
// enough for the slowest to write its pieces and for rank 0 to read everything back; none: alone. Returns the path of
// the checkpoint.
std::filesystem::path save_checkpoint(const CheckpointFolder& folder, const Progress& progress,
                                      std::span<const StateTensor> pieces, const Disk& disk = Disk(),
                                      Communicator* ranks = nullptr);

// Removes older whole ones beyond `keep`, that of step `saved` included.
void prune_checkpoints(const std::filesystem::path& folder, std::int64_t keep, std::int64_t saved,
                       WholeCheckpoints& whole, const Disk& disk);

std::string step_folder_name(std::int64_t step);                          // "step-00000100"
std::optional<std::int64_t> step_of_folder_name(std::string_view name);   // nothing for any other name
std::vector<std::int64_t> steps_in(const std::filesystem::path& folder);  // ascending; empty when there is no folder

}  // namespace lockstep
