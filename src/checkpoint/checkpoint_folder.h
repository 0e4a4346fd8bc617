// The folder of a run's checkpoints: its names, and the one way a new checkpoint comes to be in it.
//
//   DIR/step-00000100/manifest.json                       what the checkpoint holds (manifest.h)
//   DIR/step-00000100/state-00000-of-00001.safetensors    slices of tensors; several files when large
//   DIR/latest                                            the name of the newest, as text
//
// save_checkpoint, in this order: leftovers of saves that were killed are removed; everything is written into
// DIR/.partial-step-…, every file synced, the manifest last, then the folder itself; it is renamed to step-… and DIR is
// synced; `latest` is replaced in the same manner; the checkpoint is read back from the disk and held to its checksums;
// only then are older ones removed, but for the `keep` - 1 of the highest steps, each renamed to .trash-… first. So at
// every moment every step-… is whole, and a process killed anywhere leaves the new checkpoint or the one before.
//
// A step that is there already is swapped with the new one in one moment. (On a file system that cannot swap names, NFS
// for one, the old one is moved away first, and a kill between the two leaves only older steps.)
//
// A slice that is a whole tensor is stored under its real shape as "part/name", another under "part/name:begin-end".
//
// Failure: EnvironmentError; the partial folder is removed and all older checkpoints are as they were. A checkpoint
// that does not read back as written is removed and named. One process writes to a folder at a time.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/state.h"

namespace lockstep {

inline constexpr std::int64_t kStateFileLimit = std::int64_t{4} << 30;
inline constexpr const char* kLatestName = "latest";

struct CheckpointFolder {
  std::filesystem::path path;
  std::int64_t keep = 2;                      // checkpoints left after a save, the new one included; at least 1
  std::int64_t file_limit = kStateFileLimit;  // bytes of tensors a state file holds, unless a single slice has more
};

// `tensors` are on the host and cover each (part, name) exactly, in any order and in any pieces. Returns the path of
// the checkpoint.
std::filesystem::path save_checkpoint(const CheckpointFolder& folder, const Progress& progress,
                                      std::span<const StateTensor> tensors, const Disk& disk = Disk());

std::string step_folder_name(std::int64_t step);                          // "step-00000100"
std::optional<std::int64_t> step_of_folder_name(std::string_view name);   // nothing for any other name
std::vector<std::int64_t> steps_in(const std::filesystem::path& folder);  // ascending; empty when there is no folder

}  // namespace lockstep
