#include "checkpoint/find_checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/disk.h"

namespace lockstep {

std::optional<Checkpoint> find_checkpoint(const std::filesystem::path& path, const DamageReport& report) {
  std::error_code ignored;
  if (std::filesystem::exists(path / kManifestName, ignored)) return open_checkpoint(path);
  for (const std::filesystem::path& place : {path / "checkpoints", path})
    if (auto found = open_newest_whole(place, report)) return found;
  return std::nullopt;
}

std::optional<std::filesystem::path> find_manifest(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> checkpoints{path};
  for (const std::filesystem::path& folder : {path / "checkpoints", path}) {
    std::string latest;
    std::ifstream(folder / kLatestName) >> latest;
    if (is_plain_name(latest)) checkpoints.push_back(folder / latest);
  }
  std::error_code ignored;
  for (const std::filesystem::path& checkpoint : checkpoints)
    if (std::filesystem::exists(checkpoint / kManifestName, ignored)) return checkpoint / kManifestName;
  return std::nullopt;
}

namespace {

// Finds, and remembers what was passed over.
struct Search {
  std::vector<std::string> damaged;
  std::optional<Checkpoint> found;

  Search(const std::filesystem::path& path, const DamageReport& report) {
    found = find_checkpoint(path, [&](const std::filesystem::path& one, const std::string& reason) {
      damaged.push_back(fmt::format("{} ({})", one.filename().string(), reason));
      if (report) report(one, reason);
    });
  }
  // Some of them, on one line.
  std::string names() const {
    constexpr std::size_t kShown = 3;
    const std::size_t shown = std::min(kShown, damaged.size());
    return fmt::format("{}{}", fmt::join(damaged.begin(), damaged.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                       damaged.size() > shown ? fmt::format(" and {} more", damaged.size() - shown) : "");
  }
};

}  // namespace

Checkpoint require_checkpoint(const std::filesystem::path& path, const DamageReport& report) {
  Search search(path, report);
  if (!search.found && search.damaged.empty())
    throw UserError(ExitCode::checkpoint, fmt::format("{} holds no whole checkpoint", path.string()),
                    "name a run folder that has saved one, its checkpoints folder or one step-… folder");
  if (!search.found)
    throw UserError(ExitCode::checkpoint,
                    fmt::format("{} holds no whole checkpoint, all are damaged: {}", path.string(), search.names()),
                    "put a copy of one back, or name another run");
  return std::move(*search.found);
}

std::optional<Checkpoint> find_own_checkpoint(const std::filesystem::path& folder, const DamageReport& report) {
  Search search(folder, report);
  if (!search.found && !search.damaged.empty())
    throw UserError(
        ExitCode::checkpoint,
        fmt::format("{} has checkpoints and none is whole, nothing was changed: {}", folder.string(), search.names()),
        "put a copy of one back, or start over with --overwrite or another --out");
  return std::move(search.found);
}

}  // namespace lockstep
