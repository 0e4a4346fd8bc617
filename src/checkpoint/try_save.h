// A save that may fail: its result, the same on all ranks, and whether trying again could help.
//
// The disk's failures (no room, no permission, a host that does not see the folder) may be over a moment later. A state
// that is refused (finite.h) would be refused again.
#pragma once
#include <exception>
#include <string>

#include "checkpoint/checkpoint_folder.h"

namespace lockstep {

enum class SaveOutcome {
  saved,    // on the disk, and read back
  failed,   // may be tried again
  refused,  // would fail again
};

struct SaveResult {
  SaveOutcome outcome = SaveOutcome::saved;
  std::string words;         // why not: one line
  std::exception_ptr error;  // why not: on the rank where it failed its own error, on others one that names that rank
};

// save_checkpoint (checkpoint_folder.h), by all ranks. Throws only when the group of ranks itself has failed.
SaveResult try_save(const CheckpointFolder& folder, const Progress& progress, std::span<const StateTensor> pieces,
                    const Disk& disk, Communicator* ranks);

// How long to wait between tries: `first` seconds, then twice as long each time, up to `most`.
struct RetryPauses {
  double first = 1;
  double most = 60;
};

}  // namespace lockstep
