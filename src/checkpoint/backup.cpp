#include "checkpoint/backup.h"

#include <fmt/format.h>

#include <fstream>

#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"

namespace lockstep {

namespace fs = std::filesystem;

void CheckpointBackup::copy(const fs::path& checkpoint, const Disk& disk) const {
  std::string text;
  std::getline(std::ifstream(checkpoint / kManifestName, std::ios::binary), text, '\0');
  const Manifest manifest = parse_manifest(text, checkpoint.string());
  const fs::path partial = folder_ / (".partial-" + checkpoint.filename().string()),
                 final = folder_ / checkpoint.filename();
  disk.make_folders(folder_);
  disk.remove_tree(partial);
  disk.make_folder(partial);
  Provisional provisional(disk, partial);
  const auto write = [&](const std::string& name) {
    const MappedFile from(checkpoint / name);
    DiskFile to(disk, partial / name);
    to.write(from.bytes().data(), std::ssize(from.bytes()));
    return to.finish();
  };
  for (const auto* files : {&manifest.files, &manifest.companions})
    for (const ManifestFile& file : *files) {
      const WrittenFile written = write(file.name);
      if (written.bytes != file.bytes || written.checksum != file.checksum)
        throw EnvironmentError(
            fmt::format("{} is not what was saved; check the disk", (checkpoint / file.name).string()));
    }
  write(kManifestName);
  disk.sync_folder(partial);
  disk.remove_tree(final);
  disk.rename(partial, final);
  provisional.keep();
  disk.sync_folder(folder_);
}

void CheckpointBackup::backup(const fs::path& checkpoint, std::int64_t keep, const Disk& disk) noexcept {
  std::string why;
  try {
    copy(checkpoint, disk);
    prune_checkpoints(folder_, keep, *step_of_folder_name(checkpoint.filename().string()), whole_, disk);
  } catch (const std::exception& error) {
    why = error.what();
  }
  const std::lock_guard lock(mutex_);
  new_ = !why.empty() && why.substr(why.rfind(": ") + 1) != told_;
  told_ = why.empty() ? "" : why.substr(why.rfind(": ") + 1);
  if (new_) problem_ = std::move(why);
}

std::optional<std::string> CheckpointBackup::problem() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(new_, false)) return std::nullopt;
  return problem_;
}

}  // namespace lockstep
