// A second folder for checkpoints, on another disk or mount (train.backup): each is copied there when it is complete.
//
// Rank 0 copies it, in the thread that saves, so training does not wait. The copy is written, synced and renamed as a
// checkpoint is, with the manifest last, and every byte is compared with the manifest's checksums on its way. `keep`
// holds there too. A backup that fails fails no save: problem() says why, once for each reason.
//
// backup() is for the thread that saves, problem() for any.
#pragma once
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/disk.h"
#include "checkpoint/whole_checkpoints.h"

namespace lockstep {

class CheckpointBackup {
 public:
  explicit CheckpointBackup(std::filesystem::path folder) : folder_(std::move(folder)) {}
  const std::filesystem::path& folder() const { return folder_; }

  void backup(const std::filesystem::path& checkpoint, std::int64_t keep, const Disk& disk) noexcept;
  std::optional<std::string> problem();  // since it was asked before

 private:
  void copy(const std::filesystem::path& checkpoint, const Disk& disk) const;

  const std::filesystem::path folder_;
  WholeCheckpoints whole_;
  std::mutex mutex_;            // of what follows
  std::string told_, problem_;  // the reason alone, and with its place
  bool new_ = false;
};

}  // namespace lockstep
