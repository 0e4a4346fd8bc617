// Copies of the state in a host's memory: checkpoints that outlive the process and not the machine.
//
//   DIR/step-00000100/…   as checkpoint_folder.h lays it out: manifest, and the state files of the ranks of this host
//
// The folder is on a file system in memory (tmpfs), and each host has its own: the manifest is there whole, the files
// of other hosts' ranks are not. So a copy is one to resume from where all files that its manifest names are there,
// which on a host alone is always.
//
// There are two generations. A new copy is written over the files of the older one, under the name .partial-step-…, and
// gets its own name when the ranks of all hosts have written theirs. Only a copy that all ranks know to be named on
// every host (`committed`) lets the one before be written over. So at every moment one copy is complete on all hosts,
// and memory holds two, not three. Nothing is synced or read back: checksums are compared when a run resumes.
//
// Where the run has several hosts their agents mirror each host's files on another one (launch/copy_store.h), and a
// copy is named only when that is done: the first rank here leaves `ready`, and waits for the agent to say `mirrored`.
// One that says nothing for kMirrorSeconds is not waited for: the copy is then this host's alone.
//
// One thread at a time.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/state.h"
#include "comm/communicator.h"

namespace lockstep {

inline constexpr const char* kCopiesUnit = "copies";      // of the ledger: the snapshot that they are written from
inline constexpr const char* kExchangeFile = "exchange";  // of the agent: there are other hosts
inline constexpr const char* kReadyFile = "ready";
inline constexpr const char* kMirroredFile = "mirrored";
inline constexpr double kMirrorSeconds = 10;

struct CopyGenerations {
  int ranks_here = 1;               // that share this folder
  bool mirrored = false;            // each host's files are also held by another host
  bool first_here = true;           // of those: it makes, names and removes what is in the folder
  std::int64_t committed = 0;       // the step whose copy is complete on all hosts; 0: none
  std::vector<bool> here = {true};  // by rank
};

// Who shares a folder with whom, by where it is; `committed`: the step that the run resumes from where that is a copy
// of this folder, else 0. Other copies and leftovers are removed. All ranks call it, each with its own host's folder,
// which exists; fails as all_or_none() does.
CopyGenerations begin_copies(const std::filesystem::path& folder, std::int64_t committed, const Disk& disk,
                             Communicator* ranks);

// As save_checkpoint (checkpoint_folder.h), which calls it for a folder with `copies`; `keep` and `whole` mean nothing.
std::filesystem::path save_copy(const CheckpointFolder& folder, const Progress& progress,
                                std::span<const StateTensor> pieces, const Disk& disk, Communicator* ranks);

// Removes all copies, where their memory is needed. What cannot be removed stays.
void remove_copies(const std::filesystem::path& folder) noexcept;

// The steps of a folder whose copies have all their files, ascending; what is in them is not read.
std::vector<std::int64_t> complete_copies(const std::filesystem::path& folder);

// Bytes that copies of these pieces take: in the folder, and in the process that makes them. Mirrored, another host's
// folder takes as much again.
struct CopyBytes {
  std::int64_t folder = 0, process = 0;
};
CopyBytes copy_bytes(std::span<const StateTensor> pieces);

}  // namespace lockstep
