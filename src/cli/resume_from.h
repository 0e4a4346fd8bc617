// Where a run resumes: the newest state of its copies in memory, its checkpoints and their backup, or what is named.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "comm/communicator.h"
#include "spec/run/run_spec.h"
#include "train/training_run.h"

namespace lockstep {

struct ResumePlaces {
  std::filesystem::path checkpoints;  // of the run's own folder
  std::string backup;                 // train.backup; empty: none
  std::string copies;                 // in this host's memory; empty: none
  std::vector<std::int64_t> copied;   // the steps of those that all hosts have (copies_of_all)
};

// `named`: a run folder, its checkpoints or one checkpoint; "auto" is the newest of the run's own, nothing where there
// is none. Failures are those of find_checkpoint.h.
std::optional<Checkpoint> checkpoint_to_resume(const std::string& named, const ResumePlaces& places,
                                               const std::function<void(const std::string&)>& note);

// The steps of which every rank's host has a complete copy, ascending. All ranks call it, each with its own host's
// folder; none: alone.
std::vector<std::int64_t> copies_of_all(const std::string& folder, Communicator* ranks);

// Tells all ranks where rank 0 has found the checkpoint; of a copy each host has one in its own folder.
void share_place(Communicator& ranks, std::string& from, const std::string& copies);

// Where the run's copies go: none without a folder. `from`: where it resumes; `room`: train/training_run.h.
std::optional<CopyPlace> copy_place(const std::string& copies, const std::filesystem::path& from, std::int64_t room);

// What an earlier try in this layout has measured, and its copy says; else kCopyAuto.
std::int64_t copy_every_of(const Checkpoint& copy, const RunSpec& spec);

}  // namespace lockstep
