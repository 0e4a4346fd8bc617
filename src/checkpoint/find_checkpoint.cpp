#include "checkpoint/find_checkpoint.h"

#include "base/error.h"

namespace lockstep {

std::optional<Checkpoint> find_checkpoint(const std::filesystem::path& path, const DamageReport& report) {
  std::error_code ignored;
  if (std::filesystem::exists(path / kManifestName, ignored)) return open_checkpoint(path);
  for (const std::filesystem::path& place : {path / "checkpoints", path})
    if (auto found = open_newest_whole(place, report)) return found;
  return std::nullopt;
}

Checkpoint require_checkpoint(const std::filesystem::path& path, const DamageReport& report) {
  auto found = find_checkpoint(path, report);
  if (!found)
    throw UserError(ExitCode::checkpoint, fmt::format("{} holds no whole checkpoint", path.string()),
                    "name a run folder that has saved one, its checkpoints folder or one step-… folder");
  return std::move(*found);
}

}  // namespace lockstep
